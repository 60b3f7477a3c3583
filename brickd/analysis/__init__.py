"""Verdicts about workers. Knows nothing of the origin of the data."""
