"""Helpers for every room: text, units, paths, locks, files. Knows no bricks or segments."""
