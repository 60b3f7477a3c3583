"""Mutants of brickd: what the tests do not notice when it is wrong."""
