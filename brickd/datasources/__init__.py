"""Where views find workers: shared memory, a daemon, several at once. Knows no views."""
