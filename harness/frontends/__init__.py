"""Front ends: programs that were not written for this harness, run as they are."""
