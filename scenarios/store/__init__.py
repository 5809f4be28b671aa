"""Scenarios of the KV block store, on the simulated disk unless they say otherwise."""
