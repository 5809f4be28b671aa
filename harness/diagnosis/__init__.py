"""From a symptom (`checker/kind`) to its likely cause and the remedy."""
