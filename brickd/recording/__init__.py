"""Recordings: the form of their files, and the contents."""
