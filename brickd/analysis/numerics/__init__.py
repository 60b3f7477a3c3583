"""Verdicts on computed tensors: matched, judged, blamed, while workers run and afterwards."""
