"""The daemon: its loop, the segments that it drains, its process. Knows nothing of the CLI."""
