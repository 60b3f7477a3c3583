"""Workers whose documents have something in every view, with names that no page may take for markup."""

from __future__ import annotations

from typing import Any

from faults import Start
from running import Running
from verbs import started

SERVICE = "api"
HOSTILE = "</script><img src=x onerror=alert(1)>\u202e\x1b[2J\n"
SHOWN = r"</script><img src=x onerror=alert(1)>\u202e\x1b[2J\n"
WORKERS, STEPS, LAYERS = 3, 20, 2

# In the second worker, the output of the first layer is wrong. No two workers have the same inputs of `lonely`.
_PROGRAM = f"""
evil, late = brick.brick({HOSTILE!r}, {HOSTILE!r}), brick.brick("late", "copy")
for number in range({STEPS}):
    with brick.step({HOSTILE!r} + str(number)):
        for layer in range({LAYERS}):
            with brick.layer(layer):
                with evil:
                    with brick.span("inner"): pass
                given = bytearray([number, layer])
                wrong = int(NUMBER == 1 and layer == 0)
                brick.checksum({HOSTILE!r}, bytearray([number, layer, wrong]), input=given)
                brick.checksum("gemm", bytearray([layer]), input=given)
                brick.checksum("lonely", bytearray([0]), input=bytearray([number, NUMBER, layer]))
    late.defer(stream=1)
brick.finalize(stream=1)
pause()
"""


def page_workers(start: Start, daemon: Running) -> None:
    """Start three workers, and wait until the daemon has found their difference."""
    for number in range(WORKERS):
        started(start, _PROGRAM.replace("NUMBER", str(number)), BRICKD_SERVICE=SERVICE)
    daemon.once("/coverage", lambda coverage: len(coverage["findings"]) == 1)
    daemon.once("/status", lambda status: len(status["workers"]) == WORKERS and len(status["bricks"]) == 4)


def past(status: dict[str, Any], *, known: bool = True) -> dict[str, Any]:
    """Return the status of a past time with the workers of this status, as a daemon answers; or one without workers."""
    workers = [
        {key: each[key] if key in ("name", "service", "pid", "state") else None for key in each}
        for each in status["workers"]
    ]
    unknown = ("ledger", "removed", "alarms", "diverged", "weights", "numerics", "evidence", "stragglers", "waiting")
    lists = {} if known else dict.fromkeys(("workers", "problems", "silenced"))
    return {**status, "workers": workers, **dict.fromkeys(unknown), "words": ["a note about that time"], **lists}
