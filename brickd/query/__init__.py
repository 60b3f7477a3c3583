"""Queries and orders with their parameters. This package knows nothing of the answers."""
