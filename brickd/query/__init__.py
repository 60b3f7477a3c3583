"""Queries and orders, with their parameters. Knows nothing of how they are answered."""
