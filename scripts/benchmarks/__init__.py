"""What `scripts/bench` measures, one sub-command a module (`agent`, `cli`), and what those share.

Shared: `method` (how times are compared), `goals`, `report` (tables and JSON), `plot`, `machine` (facts), `workplace`
(where a run may leave files and segments). `peers` are what others offer. A sub-command has `HELP` and
`run(workplace, quick) -> Report`; what takes a process of its own is a module with a `main`.
"""
