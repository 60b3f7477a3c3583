"""Windows over random lives of workers, which start, work, lose segments, die and are forgotten.

The model knows what each worker recorded and when. The tests compare the model with brickd's memory and windows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up_workers import MadeUp
from test_windows import shown, snapshot, work, worker

from brickd.base.units import SECOND
from brickd.model.retained_workers import RetainedTotals
from brickd.model.windows import Windows
from brickd.model.worker_origins import Origin, RecentlyMerged
from brickd.model.workers import Worker
from brickd.shm.ledger import Ledger
from brickd.state.daemon_state import Memory

GONE_MAX = 2
SERVICES = ("api", "batch")


@dataclass
class Life:
    """A worker, live or dead.

    Attributes:
        spans: the time of each span.
        segments: the time at which each segment of the worker was created.
    """

    made: MadeUp
    uuid: bytes
    took: bytes = bytes(16)
    spans: list[int] = field(default_factory=list)
    segments: list[int] = field(default_factory=list)

    def worker(self, *, alive: bool) -> Worker:
        return worker(self.made, self.uuid, took=self.took, alive=alive, born_ns=self.segments[-1] * SECOND)


@dataclass
class Model:
    """A machine with a daemon, on which each step takes one second."""

    now: int = 0
    uuids: int = 0
    living: list[Life] = field(default_factory=list)
    gone: dict[str, Life] = field(default_factory=dict)
    older: dict[str, list[Life]] = field(default_factory=dict)
    memory: Memory = field(default_factory=lambda: Memory("made-up"))
    lately: RecentlyMerged = field(default_factory=RecentlyMerged)
    windows: Windows = field(default_factory=Windows)

    def uuid(self) -> bytes:
        self.uuids += 1
        return self.uuids.to_bytes(8, "big") + bytes(8)

    # ---- steps

    def come(self, which: int) -> None:
        made = MadeUp(service=SERVICES[which % 2])
        self.living.append(Life(made, self.uuid(), segments=[self.now]))

    def work(self, which: int) -> None:
        if self.living:
            life = self.living[which % len(self.living)]
            work(life.made, "a", 5)
            life.spans.append(self.now)

    def lose(self, which: int) -> None:
        if self.living:
            life = self.living[which % len(self.living)]
            life.took, life.uuid = life.uuid, self.uuid()
            life.segments.append(self.now)

    def die(self, which: int) -> None:
        if self.living:
            life = self.living.pop(which % len(self.living))
            one = life.worker(alive=False)
            self.memory.gone[one.reading.uuid] = RetainedTotals(one.name, one.reading)
            self.gone[one.reading.uuid] = life
        for uuid in list(self.memory.gone)[:-GONE_MAX]:
            gone = self.memory.gone.pop(uuid)
            into = self.memory.add_up(gone).reading
            self.lately.add(0, Origin.of(gone.reading), into.uuid)
            self.older.setdefault(into.uuid, []).append(self.gone.pop(uuid))

    def forget(self, which: int) -> None:
        service = (*SERVICES, None)[which % 3]
        for uuid, gone in list(self.memory.gone.items()):
            if service in (None, gone.reading.service):
                del self.memory.gone[uuid], self.gone[uuid]
        for key, each in list(self.memory.older.items()):
            if service in (None, each.reading.service):
                del self.memory.older[key], self.older[each.reading.uuid]

    def restart(self, which: int) -> None:
        """Restart the daemon; only its saved memory stays."""
        self.lately, self.windows = RecentlyMerged(), Windows()
        self.look()

    def look(self, which: int = 0) -> None:
        self.windows.take(snapshot(*self.all_workers(), now_ns=self.now * SECOND))

    # ---- comparisons with the model

    def all_workers(self) -> list[Worker]:
        older = [shown(each, self.lately) for each in self.memory.older.values()]
        gone = [Worker(each.name, each.reading, Ledger()) for each in self.memory.gone.values()]
        return [*(life.worker(alive=True) for life in self.living), *gone, *older]

    def lives(self) -> list[Life]:
        return [*self.living, *self.gone.values(), *(life for each in self.older.values() for life in each)]


STEPS = ("come", "work", "work", "work", "die", "die", "forget", "restart", "look", "look")


def courses(steps: tuple[str, ...]) -> st.SearchStrategy[list[tuple[str, int]]]:
    return st.lists(st.tuples(st.sampled_from(steps), st.integers(0, 5)), min_size=20, max_size=40)


def recorded(workers: list[Worker]) -> int:
    rows = (np.frombuffer(bytes(each.reading.summaries), dtypes.dtype("summary")) for each in workers)
    return sum(int(each["count"].sum()) for each in rows)


def seen_and_recorded(course: list[tuple[str, int]]) -> Iterator[tuple[int, int]]:
    """Yield two numbers: the spans that a window shows, and the spans that all workers recorded in the time of this
    window.
    """
    model = Model()
    for number in range(6):
        model.come(number)
        model.work(number)
    model.look()
    for step, which in course:
        model.now += 2
        all_workers, spans = model.all_workers(), [list(life.spans) for life in model.lives()]
        getattr(model, step)(which)
        if step in ("look", "restart"):
            continue
        # The window ends at the time of the reading, even if a step came after the reading.
        window = model.windows.over(all_workers, (model.now - 1) * SECOND, (10 if which % 2 else 60) * SECOND)
        assert window is not None
        began = model.now - 1 - window.length_ns // SECOND
        yield recorded(window.workers), sum(at > began for each in spans for at in each)
        assert recorded(all_workers) == sum(map(len, spans)), "totals never decrease"


@given(courses(STEPS))
def test_a_window_holds_the_records_of_the_shown_workers(course: list[tuple[str, int]]) -> None:
    for seen, recorded in seen_and_recorded(course):
        assert seen == recorded


@pytest.mark.ci
@given(courses((*STEPS, "lose", "lose")))
def test_a_window_never_holds_more_when_segments_are_lost(course: list[tuple[str, int]]) -> None:
    """The window may show less, if a lost segment is in no snapshot."""
    for seen, recorded in seen_and_recorded(course):
        assert seen <= recorded
