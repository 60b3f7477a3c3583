"""The data sources of views: shared memory, a daemon, several at once. This package knows no views."""
