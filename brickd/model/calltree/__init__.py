"""The call tree of many workers, merged by names, with its dependencies and its critical path."""
