"""The measurements of `scripts/bench`: one module per sub-command, and shared modules.

Shared: `method` (how times are compared), `goals`, `report` (tables and JSON), `plot`, `machine` (facts), `workplace`
(where a run may leave files and segments). `peers` are other tools. A sub-command has `HELP` and `run(workplace, quick)
-> Report`; code that needs a separate process is a module with a `main`.
"""
