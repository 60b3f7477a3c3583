"""The names of brickd's predecessors: BrickProfiler of trueno, and cbtop."""
