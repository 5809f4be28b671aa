"""`python -m harness.cli`, where the script `rankfault` is not on the path."""

from harness.cli import main

main()
