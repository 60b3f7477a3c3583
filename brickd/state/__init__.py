"""What a daemon keeps across restarts. Knows nothing of its loop."""
