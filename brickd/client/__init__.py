"""The client of a daemon. This package knows no views."""
