"""Totals, windows, deferred work and names of many workers. Knows nothing of verdicts."""
