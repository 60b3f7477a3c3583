"""The client of a daemon. Knows no views."""
