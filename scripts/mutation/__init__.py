"""Mutants of brickd: finds faults that the tests do not detect."""
