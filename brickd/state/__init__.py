"""The state that a daemon keeps across restarts. This package does not know the daemon's loop."""
