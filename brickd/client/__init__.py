"""How a daemon is found and asked. Knows nothing of views."""
