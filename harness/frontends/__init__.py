"""Programs that were not written for us, run as they are."""
