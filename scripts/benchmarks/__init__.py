"""The measurements of `scripts/bench`: one module per sub-command, and what they share.

Shared: `method` (how times are compared), `goals`, `report` (tables and JSON), `plot`, `machine` (facts), `workplace`
(where a run may leave files and segments). `peers` are other tools. A sub-command has `HELP` and
`run(workplace, quick) -> Report`; what needs a process of its own is a module with a `main`.
"""
