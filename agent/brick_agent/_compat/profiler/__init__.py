"""BrickProfiler: the names of the predecessor's profiler; the records are in this process's segment."""
