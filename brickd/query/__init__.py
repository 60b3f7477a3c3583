"""Queries and orders with their parameters. This package does not know the answers."""
