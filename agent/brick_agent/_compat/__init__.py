"""The names of brickd's predecessors: trueno's BrickProfiler and cbtop."""
