"""One segment: find, open, validate, copy and decode it. This package does not know other segments or a daemon."""
