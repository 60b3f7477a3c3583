"""The rules of the daemon's loop: when it lists, drains, judges, saves and rests, and how it fails."""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Callable, Iterator

import pytest
from conftest import SHM
from rings import events, spans
from test_collector import segment as rings_of
from test_removed_kept import append
from test_roster import segment

from brickd.base.units import SECOND
from brickd.daemon import drain_order
from brickd.daemon.attachment import Attached
from brickd.daemon.collector import JUDGE_NS, LOOK_NS, LOOK_RESTS, STILL_NS, TICK_NS, Collector
from brickd.daemon.tick_pace import Rest
from brickd.model.retained_workers import Cursor, RetainedWorker
from brickd.query.orders import Wish
from brickd.shm import removed_file
from brickd.state.checkpoint import decode
from brickd.state.daemon_state import Memory

MS = SECOND // 1000


class Loop(Collector):
    """A loop that saves its memory in a list; with `full`, saving fails."""

    def __init__(self, prefix: str, clock: Callable[[], int] = int) -> None:
        self.kept: list[bytes] = []
        self.tried, self.full, self.starved = 0, False, 0
        self.logged: list[str] = []
        super().__init__(
            Memory(prefix),
            self._save,
            lambda kind, *_, **__: self.logged.append(kind),
            clock=clock,
            starve=self._starved,
        )

    def _save(self, content: bytes) -> None:
        self.tried += 1
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.kept.append(content)

    def _starved(self) -> None:
        self.starved += 1

    @property
    def files(self) -> list[str]:
        return [each.segment.name.removeprefix(self.memory.prefix) for each in self.roster.drained()]


@pytest.fixture
def loop(prefix: str) -> Iterator[Loop]:
    one = Loop(prefix)
    yield one
    one.full = False
    one.ending.clear()
    one.end(2**40)


def place(prefix: str, name: str, **process: int) -> None:
    segment(prefix, name, os.urandom(16), **process)


# ---- look


def test_files_are_listed_every_five_seconds_and_when_one_appears(loop: Loop, prefix: str) -> None:
    loop.tick(0)
    place(prefix, "a")
    loop.tick(LOOK_NS - 1)
    assert loop.files == []
    loop.tick(LOOK_NS)
    assert loop.files == ["a"]
    place(prefix, "b")
    loop.tick(LOOK_NS + 1)
    assert loop.files == ["a"]
    loop.tick(LOOK_NS + 2, look=True)
    assert loop.files == ["a", "b"]


@pytest.mark.parametrize("asked", [True, False])
def test_a_slow_listing_delays_the_next_one_unless_the_user_asks(prefix: str, asked: bool) -> None:
    moments = itertools.count(0, 10 * MS)
    loop = Loop(prefix, clock=lambda: next(moments))
    loop.tick(0)
    place(prefix, "a")
    rests_until = (1 + LOOK_RESTS) * 10 * MS
    loop.tick(rests_until - 1, look=True, asked=asked)
    assert loop.files == (["a"] if asked else [])
    loop.tick(rests_until)
    assert loop.files == ["a"], "the change is not forgotten"
    loop.end(SECOND)


def test_without_free_descriptors_the_loop_frees_some_and_retries_after_a_second(
    loop: Loop, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place(prefix, "a")

    def exhausted(_: str) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as out:
        out.setattr(os, "scandir", exhausted)
        loop.tick(0)
    assert (loop.starved, loop.logged, loop.files) == (1, ["blind"], [])
    loop.tick(SECOND - 1)
    assert loop.files == []
    loop.tick(SECOND)
    assert (loop.starved, loop.files) == (1, ["a"])


def test_a_listing_waits_for_active_readers_only_when_it_is_overdue(loop: Loop, prefix: str) -> None:
    loop.tick(0)
    place(prefix, "a")
    with loop.roster.reading:
        loop.tick(LOOK_NS)
        loop.tick(2 * LOOK_NS - 1)
    assert loop.files == []
    loop.tick(2 * LOOK_NS - 1)
    assert loop.files == ["a"]


# ---- rest


def test_an_idle_loop_rests_a_second_and_peeks_at_rings_meanwhile(loop: Loop) -> None:
    loop.tick(0)
    assert loop.tick(SECOND) == Rest(100 * MS, 10, 0.0)
    loop.memory.wishes["api"] = Wish(off=True)
    assert loop.tick(2 * SECOND) == Rest(100 * MS, 10, 0.0)
    loop.memory.wishes["api"] = Wish(spans=True)
    assert loop.tick(3 * SECOND) == Rest(25 * MS, 40, 0.0)


@pytest.mark.parametrize(
    ("recorded", "elapsed", "rest"),
    [
        (8, 10 * MS, Rest(10 * MS, 1, 0.25)),
        (16, 10 * MS, Rest(5 * MS, 1, 0.25)),
        (1, 10 * MS, Rest(40 * MS, 2, 0.25)),
        (16, MS // 10, Rest(MS, 1, 0.25)),
        (1, SECOND, Rest(40 * MS, 6, 0.25)),
    ],
)
def test_the_next_tick_comes_when_the_fullest_ring_is_half_full(
    loop: Loop, prefix: str, recorded: int, elapsed: int, rest: Rest
) -> None:
    with rings_of(prefix, "a") as made:
        made.move(0, "span", 0)
        loop.tick(0)
        loop.tick(1)
        made.add(0, "span", spans(*({"path": 1, "sequence": n + 1} for n in range(recorded))))
        assert loop.tick(1 + elapsed) == rest


def test_a_postponed_listing_shortens_the_rest(loop: Loop) -> None:
    loop.tick(0)
    with loop.roster.reading:
        assert loop.tick(SECOND, look=True) == Rest(40 * MS, 1, 0.25)
    assert loop.tick(SECOND + 1) == Rest(100 * MS, 10, 0.0)


def test_finished_deferred_work_does_not_shorten_the_rest(loop: Loop, prefix: str) -> None:
    with rings_of(prefix, "a") as made:
        loop.tick(0)
        made.add(0, "event", events({"path": 1, "sequence": 1, "id": 1, "start": 5}))
        loop.tick(1)
        made.add(0, "event", events({"sequence": 2, "every": 1, "ticks": 9}, record="finalize"))
        loop.tick(2)
        assert loop.tick(3) == Rest(100 * MS, 10, 0.0)


# ---- judge


@pytest.mark.parametrize("ended", [0, 1])
def test_a_worker_without_a_lock_is_dead_after_five_seconds(prefix: str, ended: int) -> None:
    for at, dead in ((STILL_NS - 1, ended), (STILL_NS, 1)):
        loop = Loop(prefix)
        place(prefix, "a", ended=ended)
        loop.look(0)
        if not ended:
            loop.tick(0)
            assert loop.files == ["a"]
        loop.tick(at)
        assert (loop.files, len(loop.memory.gone)) == ([] if dead else ["a"], dead)
        loop.end(2**40)
        (SHM / f"{prefix}a").unlink(missing_ok=True)


def test_dead_workers_are_looked_for_once_a_second(loop: Loop, prefix: str) -> None:
    loop.tick(0)
    place(prefix, "a", ended=1)
    loop.look(1)
    loop.tick(JUDGE_NS - 1)
    assert loop.files == ["a"]
    loop.tick(JUDGE_NS)
    assert loop.files == []


@pytest.mark.parametrize("why", ["loop ends", "too many dead workers"])
def test_no_worker_is_removed_while_the_loop_ends_or_merging_is_late(loop: Loop, prefix: str, why: str) -> None:
    place(prefix, "a", ended=1)
    loop.look(0)
    loop.passes.run(lambda: True)
    if why == "loop ends":
        loop.ending.set()
    else:
        loop.roster.crowded = True
    loop._arrange(SECOND)
    loop._judge(SECOND)
    assert loop.files == ["a"]
    loop.ending.clear()
    loop.roster.crowded = False
    loop._arrange(SECOND)
    loop._judge(SECOND)
    assert loop.files == []


def test_records_lost_between_two_daemons_are_reported_once(loop: Loop, prefix: str) -> None:
    with rings_of(prefix, "a") as made:
        made.add(0, "event", events({"sequence": 1}))
        loop.tick(0)
        ((uuid, attached),) = loop.roster.attached.items()
        assert (attached.drain.breaks, "break" in loop.logged) == (0, False)
        loop.end(0)
        reported: list[str] = []
        memory = Memory(prefix, known={uuid: RetainedWorker("api/0", [Cursor(0, 100, 100, 100, 0)])})
        again = Collector(memory, lambda _: None, lambda kind, *_, **__: reported.append(kind), clock=int)
        for second in range(3):
            again.tick(second * SECOND)
        assert reported.count("break") == 1
        again.end(3 * SECOND)


@pytest.mark.parametrize("what", ["take", "settle", "listen"])
def test_an_exception_over_one_segment_affects_that_segment_only(
    loop: Loop, prefix: str, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    right = getattr(Attached, what)

    def wrong(self: Attached, *given: object, **also: object) -> None:
        if self.segment.name.endswith("a"):
            raise ZeroDivisionError("made up")
        right(self, *given, **also)

    with rings_of(prefix, "a") as one, rings_of(prefix, "b") as other:
        loop.tick(0)
        monkeypatch.setattr(Attached, what, wrong)
        for each in (one, other):
            each.add(0, "event", events({"sequence": 1, "id": 1}))
        if what == "listen":
            attached = next(each for each in loop.roster.drained() if each.segment.name.endswith("a"))
            with loop.roster.isolating(attached):
                attached.listen()
        loop.tick(1)
        assert loop.files == ["b"]
        reason = loop.directory.refused()[f"{prefix}a"].reason
        assert reason == "its content cannot be processed: ZeroDivisionError: made up"
        (left,) = loop.roster.drained()
        assert left.deferred.counts["started"] == 1


def test_deferred_work_is_settled_only_by_a_tick_that_reads_its_rings(
    prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drain_order, "PIECE_BYTES", 1)
    moments = itertools.count(0, TICK_NS)  # the time of a tick is over after one piece of work
    loop = Loop(prefix, clock=lambda: next(moments))
    with rings_of(prefix, "a") as first, rings_of(prefix, "b") as second:
        for made in (first, second):
            made.move(0, "event", 0)
        loop.tick(0)
        deferred = loop.roster.drained()[0].deferred
        first.add(0, "event", events({"sequence": 1}, record="finalize"))
        settled = []
        for at in range(1, 6):
            loop.tick(at)
            settled.append((deferred.settled, deferred.counts["finalized"]))
        first_read = settled.index((False, 0))
        assert settled[first_read:][:3] == [(False, 0), (False, 0), (True, 1)], (
            "each of the two segments is reached in every second tick"
        )
        loop.end(SECOND)


# ---- keep


def test_changes_are_saved_once_a_second_and_settings_at_once(loop: Loop, prefix: str) -> None:
    loop.change()
    loop.tick(0)
    with rings_of(prefix, "a"):
        for at, tried in ((SECOND - 1, 1), (SECOND, 2), (SECOND + 1, 2), (5 * SECOND // 2, 2)):
            loop.tick(at, look=True)
            assert (loop.files, loop.tried) == (["a"], tried)
        for at in (4 * SECOND, 4 * SECOND + 1):
            loop.change()
            loop.tick(at)
        assert loop.tried == 4


def test_a_buried_worker_is_saved_and_its_segment_removed_at_once(loop: Loop, prefix: str) -> None:
    loop.tick(0)
    loop.change()
    loop.tick(SECOND // 2)
    with rings_of(prefix, "a") as made:
        made.put("process", 0, ended=1)
        loop.tick(SECOND, look=True)
        assert list(loop.memory.gone) == list(decode(loop.kept[-1]).gone) != []
        assert not (SHM / f"{prefix}a").exists()


def test_unsaved_records_that_fill_half_a_ring_are_saved_at_once(loop: Loop, prefix: str) -> None:
    with rings_of(prefix, "a") as made:
        loop.change()
        loop.tick(0)
        for at, count, tried in ((1, 7, 1), (2, 1, 2)):
            made.add(0, "event", events(*({"sequence": made.heads.get((0, "event"), 0) + n + 1} for n in range(count))))
            loop.tick(at, look=True)
            assert loop.tried == tried, count


def test_failed_saving_keeps_dead_segments_and_sends_one_event(loop: Loop, prefix: str) -> None:
    with rings_of(prefix, "a") as made:
        made.add(0, "event", events({"sequence": 1}))
        place(prefix, "dead", ended=1)
        loop.full = True
        loop.tick(0)
        loop.change()
        for at in (1, SECOND - 1, SECOND, SECOND + 1, 2 * SECOND):
            loop.tick(at)
        assert (loop.tried, loop.logged.count("checkpoint_failed"), loop.trouble) == (3, 1, "No space left on device")
        assert (SHM / f"{prefix}dead").exists()
        assert int(made.line(0)["event"][0]) == 0
        loop.full = False
        loop.tick(2 * SECOND + 1)
        assert (loop.tried, loop.trouble) == (3, "No space left on device"), (
            "the memory is not saved twice in one second"
        )
        loop.tick(3 * SECOND)
        loop.tick(4 * SECOND)
        assert (loop.logged.count("checkpoint_written"), loop.trouble) == (1, "")
        assert not (SHM / f"{prefix}dead").exists()
        assert int(made.line(0)["event"][0]) == 1


def test_emptying_the_removal_records_waits_for_active_readers(loop: Loop, prefix: str) -> None:
    loop.tick(0)
    append(prefix, os.urandom(16), 5)
    loop.change()
    with loop.roster.reading:
        loop.tick(SECOND)
    assert decode(loop.kept[-1]).removed.alone
    assert removed_file.look(prefix).content
    loop.tick(2 * SECOND)
    assert not removed_file.look(prefix).content


def test_a_loop_that_ends_saves_a_clean_end_and_closes_every_file(prefix: str) -> None:
    before = len(os.listdir("/proc/self/fd"))
    loop = Loop(prefix)
    loop.memory.closed = False
    place(prefix, "a")
    loop.tick(0)
    assert not decode(loop.kept[-1]).closed
    loop.end(1)
    assert decode(loop.kept[-1]).closed
    assert (loop.roster.attached, len(os.listdir("/proc/self/fd"))) == ({}, before)
