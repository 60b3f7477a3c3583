"""Dead segments: whatever happens to them, each span is either shown once or counted once as removed, at any time.

Workers are dead from the start, so their work is known. Other processes write a record of a segment, unlink the
segment, or die in between. Some also copy a segment, so that two files have its uuid. A daemon attaches, saves totals,
removes segments, is killed before or after its checkpoint, and starts again. A person forgets and prunes workers.
"""

from __future__ import annotations

import os
import uuid

import pytest
from conftest import SHM
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from removals import dead_image
from sandbox import PREFIX

from brickd.daemon.collector import STILL_NS, Collector
from brickd.daemon.prune import prune
from brickd.model import retained_workers, worker_survey
from brickd.model.background import Background
from brickd.model.worker_survey import survey
from brickd.model.workers import Survey
from brickd.shm import _reader, removed_file, removed_workers
from brickd.shm.segment import Segment
from brickd.state.checkpoint import decode
from brickd.state.daemon_state import Memory

POINTS = st.sampled_from(["saving", "saved", "emptying", "nowhere"])


class Killed(BaseException):
    """Raised to kill the daemon: no code of the daemon runs after that."""


class RemovedMachine(RuleBasedStateMachine):
    workers = Bundle("workers")

    def __init__(self) -> None:
        super().__init__()
        self.prefix = f"{PREFIX}{os.getpid()}-{uuid.uuid4().hex[:6]}-"
        self.spans: dict[str, int] = {}
        self.recorded: set[str] = set()
        self.kept = b""
        self.daemon: Collector | None = None
        self.now_ns = 0
        self.point = "nowhere"

    def teardown(self) -> None:
        self._close()
        for file in SHM.glob(f"{self.prefix}*"):
            file.unlink()

    # ---- workers

    @rule(target=workers, spans=st.integers(1, 5))
    def a_worker_has_died(self, spans: int) -> str:
        number = f"{len(self.spans) + 1:032x}"
        (SHM / f"{self.prefix}{number}").write_bytes(dead_image(bytes.fromhex(number), spans))
        self.spans[number] = spans
        return number

    @rule(worker=workers)
    def a_new_worker_records_it(self, worker: str) -> None:
        """Let a new worker write a record of the segment.

        It may have found the segment dead just now, or some time ago.
        """
        fd = os.memfd_create("image")
        os.write(fd, dead_image(bytes.fromhex(worker), self.spans[worker]))
        record = Segment(worker, fd).removed(_reader.REMOVED_ROOM)
        os.close(fd)
        if (SHM / f"{self.prefix}{worker}").exists() and _reader.append_removed(self.prefix, record):
            self.recorded.add(worker)

    @rule(worker=workers)
    def a_new_worker_unlinks_it(self, worker: str) -> None:
        if worker in self.recorded:
            (SHM / f"{self.prefix}{worker}").unlink(missing_ok=True)

    @rule(worker=workers, name=st.sampled_from(["!", "copy-"]))
    def a_worker_is_copied(self, worker: str, name: str) -> None:
        """Copy the segment into another file with the same uuid, whose name sorts before or after the original."""
        if (SHM / f"{self.prefix}{worker}").exists():
            draft = SHM / f".{self.prefix}{name}{worker}"
            draft.write_bytes(dead_image(bytes.fromhex(worker), self.spans[worker]))
            draft.rename(SHM / f"{self.prefix}{name}{worker}")

    @rule(worker=workers, name=st.sampled_from(["!", "copy-"]))
    def the_copy_is_unlinked(self, worker: str, name: str) -> None:
        if worker in self.recorded or (SHM / f"{self.prefix}{worker}").exists():
            (SHM / f"{self.prefix}{name}{worker}").unlink(missing_ok=True)

    # ---- a daemon

    @precondition(lambda self: self.daemon is None)
    @rule()
    def a_daemon_begins(self) -> None:
        memory = decode(self.kept) if self.kept else Memory(self.prefix)
        self.daemon = Collector(memory, self._keep, lambda *_, **__: None, clock=int)

    def _keep(self, content: bytes) -> None:
        if self.point == "saving":
            raise Killed
        self.kept = content
        if self.point == "saved":
            raise Killed

    @precondition(lambda self: self.daemon is not None)
    @rule(seconds=st.sampled_from([1, 6]), point=POINTS)
    def it_looks_and_keeps(self, seconds: int, point: str) -> None:
        assert self.daemon is not None
        self.now_ns += seconds * STILL_NS // 5
        self.point = point
        try:
            with pytest.MonkeyPatch.context() as patch:
                if point == "emptying":
                    patch.setattr(removed_file, "truncate", self._die)
                self.daemon.change()
                self.daemon.tick(self.now_ns, look=True)
        except Killed:
            self._close()
        self.point = "nowhere"

    def _die(self, *_: object) -> bool:
        raise Killed

    @precondition(lambda self: self.daemon is not None)
    @rule()
    def it_ends(self) -> None:
        assert self.daemon is not None
        self.daemon.end(self.now_ns)
        self.daemon = None

    def _close(self) -> None:
        """Close the daemon's open files, as the kernel does."""
        if self.daemon is not None:
            for each in self.daemon.roster.attached.values():
                each.segment.close()
        self.daemon = None

    # ---- a person

    @precondition(lambda self: self.daemon is not None)
    @rule(worker=workers)
    def its_totals_are_forgotten(self, worker: str) -> None:
        assert self.daemon is not None
        if worker in self.daemon.memory.gone:
            with self.daemon.roster.lock:
                self.daemon.roster.forget([worker])
                self.daemon.memory.removed.take_note()

    @precondition(lambda self: self.daemon is None)
    @rule()
    def the_dead_are_pruned(self) -> None:
        prune(remove=True, prefix=self.prefix, wait=lambda _: None)

    # ---- readers

    def _seen(self) -> Survey:
        if self.daemon is None:
            return survey(self.prefix, decode(self.kept).background() if self.kept else Background())
        with self.daemon.roster.lock:
            background, held = self.daemon.roster.background(self.now_ns), self.daemon.roster.held()
        return survey(self.prefix, background, held)

    @invariant()
    def each_span_is_shown_or_removed_once(self) -> None:
        found = self._seen()
        shown = sum(each.ledger.spans["begun"] for each in found.workers)
        assert shown + sum(each.counts.spans for each in found.removed) == sum(self.spans.values())
        together = sum(each.together for each in found.workers) + sum(each.workers for each in found.removed)
        assert together == len(self.spans), "no worker counts twice"


@pytest.mark.ci
def test_every_span_of_a_dead_worker_is_shown_or_removed_exactly_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retained_workers, "GONE_MAX", 2)
    monkeypatch.setattr(removed_workers, "ALONE_MAX", 2)
    monkeypatch.setattr(worker_survey, "_WATCH_SECONDS", 0.0)  # no wait is needed, because all workers are dead
    quick = settings(stateful_step_count=25)
    run_state_machine_as_test(RemovedMachine, settings=quick)
