"""Totals, windows, deferred work and names of many workers. This package makes no verdicts."""
