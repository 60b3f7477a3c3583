"""The data sources of views: shared memory, a daemon, several sources. This package does not know views."""
