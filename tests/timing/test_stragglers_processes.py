"""Stragglers among real processes that stop, die and are replaced: only slow workers are named.

A slot is ten seconds of a clock that the test moves, and workers get their times from the test. Only the time for which
a process is stopped within a span is real.
"""

from __future__ import annotations

import json
import signal

import pytest
from conftest import Worker
from faults import Start
from machines import Machine, machine

from brickd.analysis.timing.findings import StragglerVerdict
from brickd.analysis.timing.monitor import Lookout
from brickd.base.units import SECOND
from brickd.model.event_log import Log
from brickd.model.survey_snapshot import EVERY_NS, Snapshot

PROGRAM = """
import json
gemm, reduce = brick.brick("gemm", "ffn"), brick.brick("all_reduce", "collective")
report()
for line in sys.stdin.buffer:
    order, gemm_ns, reduce_ns = json.loads(line)
    match order:
        case "enter": gemm.start()
        case "leave": gemm.stop()
        case "work":
            for call in range(20):
                gemm.record(gemm_ns + 1_000 * call)
                reduce.record(reduce_ns + 1_000 * call)
    report()
"""


class Watch:
    """Workers of one service, and which of them are named."""

    def __init__(self, here: Machine, start: Start, workers: int) -> None:
        self._here, self._start = here, start
        self.log = Log()
        self.lookout = Lookout(self.log.add)
        self.workers = [self.begin(number) for number in range(workers)]
        self.slot = 0
        for each in self.workers:
            each.next_report()
        self.look()

    def begin(self, number: int) -> Worker:
        return self._start(PROGRAM, BRICKD_SERVICE="api", BRICKD_WORKER=str(number), BRICKD="1")

    def send(self, order: str, *numbers: int, gemm_ns: int = 1_000_000, reduce_ns: int = 1_000_000) -> None:
        """Let all workers work, and wait until they have."""
        for number in numbers:
            stdin = self.workers[number].process.stdin
            assert stdin is not None
            unlike = 1_000 * ((number + self.slot) % 3)
            stdin.write(json.dumps([order, gemm_ns + unlike, reduce_ns + unlike]).encode() + b"\n")
            stdin.flush()
        for number in numbers:
            self.workers[number].next_report()

    def signal(self, number: int, *numbers: signal.Signals) -> None:
        for each in numbers:
            self.workers[number].process.send_signal(each)

    def look(self) -> StragglerVerdict:
        """End a slot, and judge the workers."""
        self._here.tick()
        now_ns = self.slot * EVERY_NS
        self.lookout.take(Snapshot.of(self._here.survey(), now_ns, now_ns + 1_700_000_000 * SECOND))
        self.slot += 1
        return self.lookout.judged()

    def logged(self) -> list[str]:
        return [event.kind for event in self.log.since(0).events]


ALL = range(8)


@pytest.mark.ci
def test_a_worker_stopped_for_some_slots_is_not_named(worker: Start, prefix: str) -> None:
    others = [number for number in ALL if number != 5]
    with machine(prefix) as here:
        watch = Watch(here, worker, len(ALL))
        for _ in range(4):
            watch.send("work", *ALL)
            watch.look()
        watch.send("enter", 5)
        watch.signal(5, signal.SIGSTOP)
        for slot in range(2):
            # The other workers wait for the stopped worker: their open calls end when it continues.
            watch.send("work", *others, reduce_ns=1_000_000)
            judged = watch.look()
            assert (judged.findings, judged.coverage[0].workers, slot) == ((), 8, slot)
        watch.signal(5, signal.SIGCONT)
        watch.send("leave", 5)
        for slot in range(7):
            watch.send("work", *others, reduce_ns=1_000_000 + 1_000_000_000 * (slot == 0))
            watch.send("work", 5)
            assert watch.look().findings == ()
        assert watch.logged() == []


def test_if_all_workers_stop_at_once_none_is_named(worker: Start, prefix: str) -> None:
    with machine(prefix) as here:
        watch = Watch(here, worker, 4)
        these = range(4)
        for _ in range(4):
            watch.send("work", *these)
            watch.look()
        watch.send("enter", *these)
        for number in these:
            watch.signal(number, signal.SIGSTOP)
        for _ in range(2):
            assert watch.look().findings == ()
        for number in these:
            watch.signal(number, signal.SIGCONT)
        watch.send("leave", *these)
        for _ in range(6):
            watch.send("work", *these)
            assert watch.look().findings == ()
        assert watch.logged() == []


@pytest.mark.ci
def test_the_successor_of_a_slow_worker_is_not_slow_by_its_name(worker: Start, prefix: str) -> None:
    with machine(prefix) as here:
        watch = Watch(here, worker, 4)
        for _ in range(5):
            watch.send("work", 0, 1, 2)
            watch.send("work", 3, gemm_ns=2_000_000)
            judged = watch.look()
        assert [finding.about.worker for finding in judged.findings] == ["api/3"]
        watch.workers[3].kill()
        watch.workers[3] = watch.begin(3)
        watch.workers[3].next_report()
        for slot in range(6):
            watch.send("work", *range(4))
            judged = watch.look()
            names = [each.name for each in here.survey().workers if each.reading.alive]
            assert (sorted(names), judged.findings, slot) == ([f"api/{n}" for n in range(4)], (), slot)
        assert watch.logged() == ["straggler", "straggler_gone"]
        assert judged.coverage[0].judged == 2


def test_a_slow_worker_is_named_by_calls_inside_an_open_call_of_the_same_brick(worker: Start, prefix: str) -> None:
    with machine(prefix) as here:
        watch = Watch(here, worker, 4)
        watch.send("enter", *range(4))
        for _ in range(5):
            watch.send("work", 0, 1, 2)
            watch.send("work", 3, gemm_ns=2_000_000)
            judged = watch.look()
        assert [(finding.about.worker, finding.about.brick) for finding in judged.findings] == [("api/3", "gemm")]
        watch.send("leave", *range(4))
