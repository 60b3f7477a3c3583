"""What `scripts/soak` does: workers come, go wrong and go, a daemon over them is killed, and everything is counted.

`worker` is all that runs in the workers; what each did stands in its `account`, which outlives it. `population` starts
and ends them, `daemon` the daemon, `churn` says when (from a seed); `samples` watches meanwhile, `judgement` compares
the accounts with what brickd says in the end, `report` shows both.
"""
