"""Recordings: their form in a file, and what stands in it."""
