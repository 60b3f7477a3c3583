"""brickd: a profiler for multi-process inference servers, read from shared memory."""
