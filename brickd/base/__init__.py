"""Helpers for all packages: text, units, paths, locks, files. This package knows no bricks and no segments."""
