"""The client of a daemon. This package does not know the views."""
