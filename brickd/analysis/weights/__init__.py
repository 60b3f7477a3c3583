"""Verdicts on weights: replicas' parameters against each other and against a manifest."""
