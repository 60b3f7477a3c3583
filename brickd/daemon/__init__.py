"""The daemon: its loop, the segments that it drains, its process. This package knows nothing of the CLI."""
