"""One segment: found, opened, validated, copied, decoded. Knows no other segment or daemon."""
