"""Segments that cost too much, dead segments, and long work while the daemon is asked to end."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from conftest import SHM
from forge import empty, header_value, put, seal
from rings import Rings, events, spans

from brickd.base.units import SECOND
from brickd.daemon import attachment, drain_order
from brickd.daemon.attachment import Attached
from brickd.daemon.collector import STILL_NS, Collector
from brickd.errors import DaemonEnds
from brickd.model import retained_workers
from brickd.model.worker_survey import survey
from brickd.model.workers import Survey
from brickd.shm import memory_budget
from brickd.shm.memory_budget import SEGMENT, Cost, Ration, cost_of
from brickd.state.checkpoint import decode
from brickd.state.daemon_state import Memory
from brickd.views.problems import Seen, problems


@contextmanager
def segment(prefix: str, name: str, **counts: int) -> Iterator[Rings]:
    """A segment that has opened lanes and no worker."""
    page = bytearray(empty(**({"lanes": 2, "span_slots": 64, "event_slots": 64} | counts)))
    put(page, "header", {"uuid": os.urandom(16), "service": name.encode(), "index": -1, "coordinates": b""})
    with (SHM / f"{prefix}{name}").open("w+b", buffering=0) as file:
        file.write(seal(page))
        file.truncate(header_value(page, "size"))
        rings = Rings(file.fileno(), bytes(page))
        rings.put("process", 0, paths=2)
        rings.path(1, 0)
        rings.move(0, "span", 0)
        yield rings


class Loop:
    """A collector, the events that it logged, and the memory that it saved."""

    def __init__(self, prefix: str) -> None:
        self.logged: list[tuple[str, str]] = []
        self.kept = b""
        self.collector = Collector(Memory(prefix), self._keep, self._log_event, clock=int)
        self.prefix = prefix

    def _keep(self, content: bytes) -> None:
        self.kept = content

    def _log_event(self, kind: str, text: str, **_: object) -> None:
        self.logged.append((kind, text))

    def tick(self, seconds: float, *, look: bool = False) -> None:
        self.collector.tick(round(seconds * SECOND), look=look)

    def found(self) -> Survey:
        """Return the workers as a client of the daemon sees them."""
        collector = self.collector
        with collector.roster.lock:
            held, background = collector.roster.held(), collector.memory.background()
        return survey(self.prefix, background, held)

    def one(self, name: str) -> Attached:
        """Return the segment with this name."""
        (each,) = [each for each in self.collector.roster.attached.values() if each.service == name]
        return each


@pytest.fixture
def loop(prefix: str) -> Iterator[Loop]:
    made = Loop(prefix)
    yield made
    made.collector.end(10**6 * SECOND)


def limit(monkeypatch: pytest.MonkeyPatch, *, read: int = SEGMENT.read, kept: int = SEGMENT.kept) -> None:
    monkeypatch.setattr(memory_budget, "SEGMENT", Cost(read, kept))


def record(r: Rings, number: int) -> None:
    """Add one span and one event."""
    r.add(0, "span", spans({"sequence": number, "path": 1}))
    r.add(0, "event", events({"sequence": number, "path": 1, "id": number}))
    r.put("lane", 0, begun=number, summarized=number)


def test_over_its_limit_a_segments_totals_are_read_but_not_its_rings(
    prefix: str, loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    with segment(prefix, "costly") as costly, segment(prefix, "cheap", lanes=1) as cheap:
        record(costly, 1)
        loop.tick(0)
        each, other = loop.one("costly"), loop.one("cheap")
        cost = cost_of(each.segment.extent(), 1, each.drain.resident)
        limit(monkeypatch, kept=cost.kept + cost.detail - 1)
        assert len(loop.found().workers) == 2
        loop.tick(1)
        assert [text for kind, text in loop.logged if kind == "rationed"] == [
            f"costly/0 {each.account.why}; its spans and events are not read"
        ]
        assert "of memory: the limit for one segment is" in each.account.why
        assert (each.drain.longest(), each.drain.recent()) == ([], b"")
        read = each.drain.read
        for r in (costly, cheap):
            record(r, 2)
        loop.tick(1.5)
        assert each.drain.read == read
        assert other.drain.spans == 1
        totals = {worker.service: worker.ledger.spans["begun"] for worker in loop.found().workers}
        assert totals == {"costly": 2, "cheap": 2}


def test_a_segment_over_the_hard_limit_is_quarantined_with_figure_and_limit(
    prefix: str, loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    with segment(prefix, "costly") as costly, segment(prefix, "cheap", lanes=1):
        costly.put("lane", 1, opened=1, begun=1)
        loop.tick(0)
        limit(monkeypatch, kept=cost_of(loop.one("costly").segment.extent()).kept - 1)
        found = loop.found()
        assert [worker.service for worker in found.workers] == ["cheap"]
        (refused,) = found.refused
        assert refused.path == f"{prefix}costly"
        assert "of memory: the limit for one segment is" in refused.reason
        reported = problems(Seen(found.workers, refused=found.refused))
        assert [each.command for each in reported if each.kind == "quarantined"] == ["brickd doctor"]
        loop.tick(1)
        assert loop.collector.directory.refused()[f"{prefix}costly"].reason == refused.reason
        assert [each.service for each in loop.collector.roster.drained()] == ["cheap"]
        assert [error.reason for error in loop.found().refused] == [refused.reason]


def test_a_less_often_read_segment_is_reported_once(prefix: str, loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    with segment(prefix, "costly") as costly:
        loop.tick(0)
        limit(monkeypatch, read=cost_of(loop.one("costly").segment.extent()).read - 1)
        for second in (1, 2, 3):
            assert loop.found().workers[0].ledger.spans["begun"] == 0, (
                "nothing has changed since the first reading of this kind"
            )
            record(costly, second)
            loop.tick(second)
        texts = [text for kind, text in loop.logged if kind == "rationed"]
        assert texts == [f"costly/0 {loop.one('costly').account.why}; its totals are read once a minute"]


def test_an_active_segment_with_unread_rings_is_alive_and_read_at_its_end(prefix: str, loop: Loop) -> None:
    with segment(prefix, "costly") as costly:
        record(costly, 1)
        loop.tick(0)
        loop.one("costly").account.ration = Ration.NO_DETAIL
        for second in range(1, 12):
            record(costly, second + 1)
            loop.tick(second)
        each = loop.one("costly")
        assert (each.drain.spans, loop.collector.memory.gone) == (2, {}), (
            "the rings were read only until the segment went over its limit"
        )
        loop.tick(11 + STILL_NS / SECOND)
        assert list(loop.collector.memory.gone) == [each.uuid]
        assert each.drain.spans == 12
        (gone,) = loop.found().workers
        assert (gone.ledger.events["consumed"], gone.ledger.details["consumed"]) == (12, 12)


def test_deferred_work_waits_for_a_tick_that_reads_its_segment(prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drain_order, "PIECE_BYTES", 1)
    times = iter(range(0, 10**15, SECOND))  # each tick has time for only one piece of work
    loop = Collector(Memory(prefix), lambda _: None, lambda *_, **__: None, clock=lambda: next(times))
    with segment(prefix, "a") as r, segment(prefix, "b"):
        r.add(0, "event", events({"sequence": 1, "path": 1, "id": 1, "start": 5}))
        r.add(0, "event", events({"sequence": 2, "every": 1, "ticks": 9}, record="finalize"))
        loop.look(0)
        bounded = []
        (each,) = [each for each in loop.roster.attached.values() if each.service == "a"]
        for _ in range(4):
            read = each.drain.read
            loop.tick(0)
            bounded.append((each.drain.read > read, each.deferred.counts["bounded"]))
        assert bounded == [(True, 0), (False, 0), (True, 1), (False, 1)]
        loop.end(SECOND)


# ---- dead segments


@pytest.mark.ci
def test_a_dead_segment_with_endless_rings_is_quarantined_and_its_records_count(
    prefix: str, loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attachment, "_LAST_BYTES", 1)
    with segment(prefix, "endless") as endless:
        endless.put("process", 0, ended=1)  # the worker has ended, but records continue to appear
        loop.tick(0)
        for second in range(1, 1000):
            record(endless, second)
            loop.tick(second)
            if loop.collector.directory.refused():
                break
        reason = loop.collector.directory.refused()[f"{prefix}endless"].reason
        assert re.fullmatch(r"its rings do not end: \d+ MiB were read from them, expected at most \d+ MiB", reason)
        assert loop.collector.memory.gone == {}


@pytest.mark.ci
def test_large_rings_of_a_dead_segment_are_read_over_several_ticks(
    prefix: str, loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attachment, "_LAST_BYTES", 65536 * 64)
    many = 3 * 65536
    with segment(prefix, "large", span_slots=1 << 18) as large:
        loop.tick(0)
        each = loop.one("large")
        large.add(0, "span", spans(*({"sequence": n + 1, "path": 1} for n in range(many))))
        large.put("lane", 0, begun=many, summarized=many)
        each.account.ration = Ration.NO_DETAIL  # nothing more of the segment is read until its worker is dead
        taken = []
        for second in range(1, 20):
            loop.tick(second)
            taken.append(each.drain.spans)
        assert sorted(set(taken)) == [65536, 2 * 65536, many]
        assert list(loop.collector.memory.gone) == [each.uuid]


def test_many_lanes_of_dead_workers_are_merged(prefix: str, loop: Loop) -> None:
    for name, lanes in (("few", 64), ("many", 65)):
        with segment(prefix, name, lanes=lanes) as r:
            for lane in range(lanes):
                r.put("lane", lane, opened=1, begun=lane, summarized=lane)
    for second in (0, 6):
        loop.tick(second)
    gone = {each.reading.service: each.reading for each in loop.collector.memory.gone.values()}
    assert {name: len(reading.lanes) for name, reading in gone.items()} == {"few": 64, "many": 1}
    assert {worker.service: worker.ledger.spans["begun"] for worker in loop.found().workers} == {
        "few": 63 * 64 // 2,
        "many": 64 * 65 // 2,
    }


@pytest.mark.parametrize(("bytes_max", "kept"), [(1, 0), (16_000, 3), (1 << 30, 4)])
def test_the_oldest_dead_workers_are_merged_over_the_limit(
    prefix: str, loop: Loop, monkeypatch: pytest.MonkeyPatch, bytes_max: int, kept: int
) -> None:
    monkeypatch.setattr(retained_workers, "GONE_BYTES", bytes_max)
    loop.tick(0)
    for second in range(1, 5):
        with segment(prefix, "died", lanes=1) as r:
            record(r, second)
            r.put("process", 0, ended=1)
            loop.tick(second, look=True)
    loop.tick(6)
    memory = loop.collector.memory
    begun = [sum(lane["begun"] for _, lane, _ in each.reading.lanes) for each in memory.gone.values()]
    assert begun == [1, 2, 3, 4][4 - kept :]
    assert sum(each.workers for each in memory.older.values()) == 4 - kept
    assert sum(worker.ledger.spans["begun"] for worker in loop.found().workers) == 1 + 2 + 3 + 4


def test_no_more_dead_workers_are_read_until_earlier_ones_are_merged(
    prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter(range(0, 10**15, SECOND // 25))  # the clock advances by this step at each reading
    loop = Collector(Memory(prefix), lambda _: None, lambda *_, **__: None, clock=lambda: next(times))
    seconds = iter(range(100))

    def died(names: str) -> None:
        for name in names:
            with segment(prefix, name) as r:
                r.put("process", 0, ended=1)
        while len(loop.roster.attached) + len(loop.memory.gone) < len(names):
            loop.tick(next(seconds) * SECOND, look=True)

    died("abcdef")
    while len(loop.memory.gone) < 6:
        loop.tick(next(seconds) * SECOND)
    monkeypatch.setattr(retained_workers, "GONE_MAX", 1)
    loop.keep(next(seconds) * SECOND)
    assert loop.roster.crowded, "one tick has no time for all segments"
    before = len(loop.memory.gone)
    loop.tick(0)
    assert len(loop.memory.gone) < before, "the next tick continues, however late it is"
    died("g")
    services = {each.reading.service for each in loop.memory.gone.values()}
    assert "g" not in services
    while loop.roster.crowded:
        assert services >= {each.reading.service for each in loop.memory.gone.values()}
        loop.tick(next(seconds) * SECOND, look=True)
    while loop.roster.attached:
        loop.tick(next(seconds) * SECOND)
    assert [each.reading.service for each in loop.memory.gone.values()] == ["g"]
    assert sum(each.workers for each in loop.memory.older.values()) == 6
    loop.end(100 * SECOND)


def test_a_loop_that_ends_merges_no_workers(prefix: str, loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    loop.tick(0)
    for name in "ab":
        with segment(prefix, name) as r:
            record(r, 1)
            r.put("process", 0, ended=1)
    loop.tick(1, look=True)
    monkeypatch.setattr(retained_workers, "GONE_MAX", 0)
    loop.collector.ending.set()
    loop.collector.end(2 * SECOND)
    assert (len(loop.collector.memory.gone), loop.collector.memory.older) == (2, {})


# ---- saved data


def test_trailing_cursors_of_empty_lanes_are_not_saved(prefix: str, loop: Loop) -> None:
    with segment(prefix, "0", lanes=8) as r:
        for lane in range(8):
            r.move(lane, "span", 0)
        r.add(3, "event", events({"sequence": 1, "path": 1}))
        loop.tick(0)
        loop.tick(2)
        (known,) = decode(loop.kept).known.values()
        assert [tuple(cursor) for cursor in known.cursors] == [(0, 0, 0, 0, 0)] * 3 + [(0, 1, 1, 1, 0)]


# ---- the end


def test_a_loop_that_ends_attaches_no_file_and_buries_no_worker(prefix: str, loop: Loop) -> None:
    with segment(prefix, "0"):
        loop.tick(0)
        with segment(prefix, "1"):
            loop.collector.ending.set()
            loop.tick(6, look=True)
            assert [each.service for each in loop.collector.roster.drained()] == ["0"]
            assert loop.collector.memory.gone == {}
            with loop.collector.roster.lock:
                held = loop.collector.roster.held(lambda: not loop.collector.ending.is_set())
            with pytest.raises(DaemonEnds):
                survey(prefix, held=held)


def test_a_tick_judges_workers_within_its_time_and_the_next_continues(prefix: str) -> None:
    times = iter(range(0, 10**15, SECOND // 25))  # the clock advances by this step at each reading
    loop = Collector(Memory(prefix), lambda _: None, lambda *_, **__: None, clock=lambda: next(times))
    for name in "abcdef":
        with segment(prefix, name):
            pass
    try:
        for _ in range(6):
            loop.tick(0)
        gone = []
        for _ in range(8):
            loop.tick(6 * SECOND)
            gone.append(len(loop.memory.gone))
        assert gone[0] < 6
        assert gone[-1] == 6
    finally:
        loop.end(100 * SECOND)
    assert not list(Path(SHM).glob(f"{prefix}*"))
