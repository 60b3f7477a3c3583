"""KernelTrace: traces as in cbtop, which this process keeps and compares with another run."""
