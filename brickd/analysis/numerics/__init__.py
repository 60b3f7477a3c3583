"""Verdicts on computed tensors, while workers run and afterwards."""
