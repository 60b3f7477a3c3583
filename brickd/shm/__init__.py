"""One segment: find, open, validate, copy and decode it. This package knows no other segment and no daemon."""
