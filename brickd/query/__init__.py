"""What may be asked of brickd, and what a daemon may be told. Knows nothing of how a query is answered."""
