"""What the numbers of many workers mean: totals, windows, deferred work, names. Knows nothing of verdicts."""
