"""The measurements of `scripts/bench`: one module per sub-command, and shared modules.

These modules are shared: `method` compares times, `goals` has the limits, `report` makes tables and JSON, `plot` draws
pictures, `machine` collects facts about the machine, and `workplace` has the folder and the segments of a run. `peers`
has the other tools that brickd is compared with. A sub-command has `HELP` and `run(workplace, quick) -> Report`; code
that needs a process of its own is in a module with a `main`.
"""
