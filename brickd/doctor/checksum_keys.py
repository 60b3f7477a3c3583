"""Whether the workers of a service use one key for their checksums.

Owns: the observed facts about keys, and the verdict. Must not know: the keys (a segment has only their names), what was
recorded. Invariants: Only live workers are compared, because the key may have changed after another worker died. A
worker without checksums needs no key.
"""

from __future__ import annotations

import os
import shlex
from collections import Counter
from pathlib import Path

from brickd.base.units import listed
from brickd.doctor.check import CheckResult, fine
from brickd.doctor.segments import ReadSegment, Segments

_WANTED = "one key for all workers of a service"


def observe(state: Path) -> str:
    """Return the file where a worker in this environment looks for its key."""
    return os.environ.get("BRICKD_KEY_FILE") or os.fspath(state / "key")


def judge(segments: Segments, file: str) -> list[CheckResult]:
    """Find the services whose workers have several keys; `file` is the key file that all workers should use."""
    services: dict[str, list[ReadSegment]] = {}
    for worker in segments.live:
        if worker.key is not None:
            services.setdefault(worker.service, []).append(worker)
    found = [one for workers in services.values() if (one := _service(workers, file)) is not None]
    return found or [fine("keys", "one key in each service", _WANTED)]


def _service(workers: list[ReadSegment], file: str) -> CheckResult | None:
    """Compare with the most frequent key.

    If several keys are equally frequent, compare with the key of the first worker that has one of them.
    """
    ((most, _),) = Counter(worker.key for worker in workers).most_common(1)
    others = [worker for worker in workers if worker.key != most]
    if not others:
        return None
    names, first = [worker.name for worker in others], next(worker.name for worker in workers if worker.key == most)
    if most == 0:
        seen = f"a key in {listed(names)}, none in {first}"
    elif all(worker.key == 0 for worker in others):
        seen = f"no key in {listed(names)}, one in {first}"
    else:
        seen = f"a different key in {listed(names)} than in {first}"
    fix = f"BRICKD_KEY_FILE={shlex.quote(file)}"
    why = (
        "set this in the server's environment; until then, these workers' checksums cannot be compared with the others'"
    )
    return CheckResult("keys", "advice", seen, _WANTED, fix, why, tuple(names))
