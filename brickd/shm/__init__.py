"""One segment: found, opened, validated, copied, decoded. Knows nothing of other segments or daemons."""
