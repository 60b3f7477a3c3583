"""Queries and orders with their parameters. Does not know how they are answered."""
