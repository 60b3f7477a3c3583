"""A reference engine: continuous batching over small real decoders, whose replicas never get the same batch.

`traffic` (requests by seed), `prefix_cache` (blocks), `scheduler` (which tokens a step computes) and `truth` (what the
harness knows) need no torch. `model` (the paged cache of a transformers model), `engine` (one step), `faults` and
`rows` (checksums of rows, without brickd) do. `replica` is the process.
"""
