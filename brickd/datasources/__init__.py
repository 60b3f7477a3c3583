"""Where views find workers: shared memory, a daemon, several at once. Knows nothing of views."""
