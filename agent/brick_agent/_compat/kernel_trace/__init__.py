"""KernelTrace: traces as in cbtop. The process keeps its traces, and can compare them with those of another run."""
