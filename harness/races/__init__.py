"""Happens-before with remote completion, computed from a finished record; see clocks.py.

joins.py   what a wait may take for granted: the order statistic
cells.py   the writes to one cell, and what a read of its value acquires
steps.py   the record as the steps that matter to clocks
clocks.py  the clocks, by passes over these steps
shadow.py  who touched which bytes last
conflicts.py  the accesses of a run that nothing orders
"""
