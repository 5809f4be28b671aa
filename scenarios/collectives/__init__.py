"""The rungs of the collectives' ladder, each driven on worlds of 1 to 8 ranks."""
