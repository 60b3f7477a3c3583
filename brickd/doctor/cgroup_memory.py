"""The memory control group of brickd's own process, version 1 or 2.

Owns: whether its limits leave room for a worker. Must not know: the workers' groups: one that is short of memory shows
as refused memory in its worker's segment.
"""

from __future__ import annotations

from brickd.base.cgroups import Limit
from brickd.doctor.check import CheckResult, fine, mib
from brickd.doctor.container import Container, more_memory
from brickd.doctor.shared_memory import MOST_BYTES


def judge(limit: Limit | None, container: Container) -> CheckResult:
    """Is there room in it for one more worker, if it is started from here?"""
    wanted = f"{mib(MOST_BYTES)}, the most that one worker takes"
    if limit is None:
        return fine("memory-group", "no limit", wanted)
    seen = f"{mib(limit.room_bytes)} of {mib(limit.limit_bytes)} left in {limit.file}"
    if limit.room_bytes >= MOST_BYTES:
        return fine("memory-group", seen, wanted)
    fix = more_memory(container, limit.file, limit.limit_bytes + (1 << 30))
    return CheckResult(
        "memory-group", "advice", seen, wanted, fix, "a worker that starts here is not killed, but records nothing"
    )
