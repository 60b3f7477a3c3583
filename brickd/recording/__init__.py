"""Recordings: write, read and replay them."""
