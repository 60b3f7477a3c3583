"""Fleets of real model architectures with faults: `scripts/bench verdicts`."""
