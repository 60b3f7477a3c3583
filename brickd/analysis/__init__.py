"""Verdicts: what the comparison of workers comes to. Knows nothing of where data comes from."""
