"""One mutant a checker."""
