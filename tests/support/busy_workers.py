"""Workers that work all the time, and that report exactly how much work they have done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from conftest import Worker

from brickd.shm.segment import open_segment

SERVICE = "load"
MEASURED_NS = 7  # the duration that each measurement reports, in ns

# At rest, the worker has reported all of its work, and waits in a read of stdin.
_PROGRAM = f"""
import select
from concurrent.futures import ThreadPoolExecutor

span, kernel = brick.brick("span"), brick.brick("kernel")
done = dict.fromkeys(("spans", "defer", "finalize", "measured"), 0)

def spans():
    for _ in range(10):
        with span:
            pass

def batch(other):
    there = other.submit(spans)
    stream = done["finalize"] % 3
    spans()
    ids = [kernel.defer(stream=stream) for _ in range(8)]
    durations = {{id: {MEASURED_NS} for id in ids[:2] if id}}
    there.result()
    closing = other.submit(brick.finalize, stream=stream, durations=durations) if any(ids) else None
    spans()
    done["spans"] += 30
    done["defer"] += len(ids)
    done["measured"] += len(durations)
    if closing is not None:
        closing.result()
        done["finalize"] += 1

orders = select.poll()
orders.register(0, select.POLLIN)
with ThreadPoolExecutor(1) as other:
    report(_core._segment_name() if brick.init() else None)
    while True:
        batch(other)
        if orders.poll(PACE_MS):
            os.read(0, 1)
            report(done)
            if not os.read(0, 1):
                break
"""


@dataclass
class Loaded:
    """One busy worker.

    Attributes:
        file: the segment of the worker.
        reported: the work that it reported when it was last at rest.
        fate: "lives", "ended", "killed" (at rest) or "cut" (killed while it worked).
    """

    worker: Worker
    file: str = ""
    reported: Counter[str] = field(default_factory=Counter)
    fate: str = "lives"

    def rest(self) -> None:
        """Bring the worker to rest, and read its report."""
        self.worker.go()
        self.reported = Counter(self.worker.next_report())

    def kill(self) -> None:
        """Kill the worker at rest, so that its report is exact."""
        self.rest()
        self.worker.kill()
        self.fate = "killed"

    def cut(self) -> None:
        """Kill the worker while it works."""
        self.rest()
        self.worker.go()
        self.worker.kill()
        self.fate = "cut"

    def end(self) -> None:
        """Let the worker end while a daemon drains its segment. Without a daemon, the worker would remove the
        segment.
        """
        self.rest()
        assert open_segment(self.file).consumer() is not None
        assert self.worker.end() == 0, self.worker.stderr
        self.fate = "ended"


def loaded(start: Callable[..., Worker], *, pace_ms: int = 2) -> Loaded:
    """Return a busy worker that has begun to work."""
    worker = start(_PROGRAM.replace("PACE_MS", str(pace_ms)), BRICKD_SERVICE=SERVICE)
    return Loaded(worker, worker.next_report())
