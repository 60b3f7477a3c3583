"""The instrumentation of torch models."""
