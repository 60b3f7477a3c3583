"""The data sources of views: shared memory, a daemon, several at once. Knows no views."""
