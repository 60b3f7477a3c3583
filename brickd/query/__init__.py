"""Queries and orders with their parameters. Knows nothing of the answers."""
