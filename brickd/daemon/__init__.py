"""The daemon: its loop, the segments that it drains, its process. This package does not know the CLI."""
