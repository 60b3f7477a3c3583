"""A reference engine: continuous batching over small real decoders, whose replicas never get the same batch.

These modules need no torch: `traffic` (requests by seed), `prefix_cache` (blocks), `scheduler` (which tokens a step
computes) and `truth` (lineages and faults). These modules need torch: `model` (the paged cache of a transformers
model), `engine` (one step), `rows` (digests of rows, made without brickd) and `faults`. `replica` is the process of a
replica. `command` runs `scripts/bench evidence`. It uses `frozen` (the limits), `cells` (the list of trials), `trial`
(one trial), `recorded` (recordings of trials), `split` (new fleets out of recordings), `bitwise` (with brickd and
without it) and `row_table` (rows of different replicas).
"""
