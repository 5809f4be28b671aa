"""Probes of the harness itself."""
