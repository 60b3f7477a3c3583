"""Verdicts on time: stragglers, hangs, the comparison of speed."""
