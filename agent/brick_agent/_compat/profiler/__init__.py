"""BrickProfiler: the seed profiler's names over this process's own segment."""
