"""Front ends: programs that were not written for this project, run as they are."""
