"""Stores with one planted bug each; a module belongs to the scenario of its name."""
