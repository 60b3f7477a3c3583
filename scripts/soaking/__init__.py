"""The parts of `scripts/soak`: workers and daemons start and die, and records are counted.

`worker` is the code in the workers; each writes its `account`, which survives it. `population` starts and ends them,
`daemon` the daemon; `churn` decides when (from a seed); `samples` watches during the run, `judgement` compares the
accounts with brickd's numbers at the end, `report` shows both.
"""
