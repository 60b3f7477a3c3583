"""A reference engine: continuous batching over small real decoders, whose replicas never get the same batch.

`traffic` (requests by seed), `prefix_cache` (blocks), `scheduler` (which tokens a step computes) and `truth` (lineages
and faults) need no torch; `model` (the paged cache of a transformers model), `engine` (one step), `rows` (digests of
rows, without brickd) and `faults` do. `replica` is the process. `scripts/bench evidence` is `command`, with `frozen`
(its limits), `cells` (the list of trials), `trial`, `bitwise` and `row_table` (rows of different replicas).
"""
