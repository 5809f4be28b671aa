"""Fabrics: where ranks run. Today the simulated one."""
