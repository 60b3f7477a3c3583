"""Mutants of brickd: which faults the tests do not notice."""
