"""Verdicts on time: stragglers, hangs, comparisons of speed."""
