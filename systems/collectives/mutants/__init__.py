"""The ladder's pitfalls: each mutant replaces one function of the rung after which its file is named."""
