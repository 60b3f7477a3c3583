"""The daemon's API: HTTP with JSON over a unix socket. Only the daemon imports this package."""
