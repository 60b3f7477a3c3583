"""Verdicts on weights: compares replicas with each other and with a manifest."""
