"""PyPTO distributed (`pld`) programs, run unmodified on the simulated fabric."""
