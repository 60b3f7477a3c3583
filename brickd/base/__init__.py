"""Helpers for all packages: text, units, paths, locks, files. This package knows neither bricks nor segments."""
