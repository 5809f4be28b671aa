"""The ladder's pitfalls: a mutant replaces one function of the rung that its file is named
after."""
