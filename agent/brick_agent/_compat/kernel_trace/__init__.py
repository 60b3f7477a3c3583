"""KernelTrace: the traces of cbtop, kept in this process and compared with another run."""
