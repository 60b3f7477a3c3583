"""The daemon's API: HTTP with JSON over a unix socket. Imported by the daemon alone."""
