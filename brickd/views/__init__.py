"""One document per query, the same for the command line and for the daemon's API."""
