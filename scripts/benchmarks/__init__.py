"""The measurements of `scripts/bench`: one module per sub-command, and shared modules.

Shared: `method` (how times are compared), `goals`, `report` (tables and JSON), `plot`, `machine` (facts), `workplace`
(the folder and the segments of a run). `peers` are other tools. A sub-command has `HELP` and `run(workplace, quick) ->
Report`; code that needs its own process is a module with a `main`.
"""
