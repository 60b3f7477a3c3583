"""Totals, windows, deferred work and names of many workers. This package knows no verdicts."""
