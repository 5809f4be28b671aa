"""Defects that stores have had: a mutant replaces one function or method of the store.

Each file is named after the scenario that shows its mutants. The reports are public ones.
"""
