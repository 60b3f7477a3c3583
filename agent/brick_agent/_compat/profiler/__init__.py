"""BrickProfiler: the predecessor's names, over this process's segment."""
