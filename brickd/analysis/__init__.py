"""Verdicts about workers. The modules here do not know where the data comes from."""
