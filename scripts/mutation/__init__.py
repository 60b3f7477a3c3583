"""Mutants of brickd: deliberate faults, to find those that the tests do not detect."""
