"""Verdicts: what a comparison of workers finds. Knows nothing of the origin of the data."""
