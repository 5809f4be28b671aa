"""Embedded systems under test; beside each its mutants. They import harness's front door only."""
