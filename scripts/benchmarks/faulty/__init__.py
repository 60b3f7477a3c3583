"""Fleets of real model architectures in which faults are injected, for `scripts/bench verdicts`."""
