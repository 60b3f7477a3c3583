"""KernelTrace: traces as in cbtop, kept in this process and compared with another run."""
