"""PyPTO `pld` programs, run as ordinary Python on the simulated fabric."""
