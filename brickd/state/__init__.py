"""The state that a daemon keeps across restarts. Does not know its loop."""
