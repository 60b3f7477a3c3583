"""One segment: find, open, validate, copy and decode it. Knows no other segment or daemon."""
