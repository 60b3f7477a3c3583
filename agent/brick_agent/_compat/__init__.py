"""The names of the tools that brickd grew out of: trueno's BrickProfiler and cbtop."""
