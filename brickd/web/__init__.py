"""The web page: its files, how a browser may use them, and the token for its data."""
