"""The parts of `scripts/soak`, which starts and kills workers and daemons, and checks that every record is counted.

`worker` is the code of the workers. Each worker writes its `account`, a file that survives the worker. `population`
starts and ends the workers, and `daemon` the daemon. `churn` decides when, from a seed. `samples` observes the run. At
the end, `judgement` compares the accounts with brickd's numbers, and `report` shows both.
"""
