"""The roster (list of workers) of successive daemons: a daemon remembers workers, reports those that are missing, and
finds those that continue in other segments.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import forge
import posix_ipc
import pytest
from conftest import SHM
from faults import Start
from forge import golden
from test_roster import segment

from brickd.base.units import SECOND
from brickd.daemon import admission
from brickd.daemon.attachment import Stage
from brickd.daemon.collector import Collector
from brickd.errors import SegmentRefused, SegmentUndrained
from brickd.model import retained_workers
from brickd.model.retained_workers import Cursor
from brickd.model.worker_survey import survey
from brickd.query.orders import Wish
from brickd.shm import _reader
from brickd.shm.memory_budget import kept_of
from brickd.shm.segment import Segment, open_segment
from brickd.state.checkpoint import decode
from brickd.state.daemon_state import Memory


class Life:
    """The loops of successive daemons: each begins with the memory that the previous daemon saved."""

    def __init__(self, prefix: str) -> None:
        self.prefix, self.kept, self.second = prefix, b"", 0
        self.logged: list[tuple[str, str]] = []
        self.loop: Collector
        self.start()

    def start(self) -> None:
        memory = decode(self.kept) if self.kept else Memory(self.prefix)
        self.loop = Collector(memory, self._keep, lambda kind, text, **_: self.logged.append((kind, text)), clock=int)

    def _keep(self, content: bytes) -> None:
        self.kept = content

    @property
    def memory(self) -> Memory:
        """Return the memory that the next daemon would load."""
        return decode(self.kept)

    def tick(self) -> None:
        self.second += 1
        self.loop.tick(self.second * SECOND, look=True)

    def restart(self) -> None:
        self.loop.end(self.second * SECOND)
        self.start()

    def shown(self) -> int:
        """Return the number of workers that a reader sees."""
        with self.loop.roster.lock:
            found = survey(self.prefix, self.loop.memory.background(), self.loop.roster.held()).workers
        return sum(each.together for each in found)


@pytest.fixture
def life(prefix: str) -> Iterator[Life]:
    one = Life(prefix)
    yield one
    one.loop.end(1000 * SECOND)


def irremovable(prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on, make every removal of a segment fail."""
    unlink = posix_ipc.unlink_shared_memory

    def refused(name: str) -> None:
        if name.startswith(prefix):
            raise posix_ipc.PermissionsError
        unlink(name)

    monkeypatch.setattr(posix_ipc, "unlink_shared_memory", refused)


DENIED = "its worker ended, and its totals are kept, but the file cannot be removed: permission denied"


def remembered(life: Life, prefix: str, uuid: bytes) -> None:
    """Return a daemon's memory with a worker whose segment still exists, because the daemon was killed before it
    removed the segment.
    """
    segment(prefix, "dead", uuid, ended=1)
    life.tick()
    assert list(life.memory.gone) == [uuid.hex()]
    assert not (SHM / f"{prefix}dead").exists()
    segment(prefix, "dead", uuid, ended=1)
    life.restart()


def test_the_segment_of_a_remembered_worker_is_removed_and_adds_nothing(life: Life, prefix: str) -> None:
    remembered(life, prefix, os.urandom(16))
    before = len(os.listdir("/proc/self/fd"))
    life.tick()
    assert not (SHM / f"{prefix}dead").exists()
    assert (life.shown(), life.loop.roster.attached, life.loop.directory.quarantined) == (1, {}, {})
    assert (life.memory.buried, len(os.listdir("/proc/self/fd"))) == ([], before)


def test_an_irremovable_segment_of_a_remembered_worker_is_reported(
    life: Life, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    uuid = os.urandom(16)
    remembered(life, prefix, uuid)
    irremovable(prefix, monkeypatch)
    descriptors = len(os.listdir("/proc/self/fd"))
    life.logged.clear()
    life.tick()
    assert life.logged == [("quarantined", f"{prefix}dead: {DENIED}")]
    assert life.loop.directory.refused()[f"{prefix}dead"].reason == DENIED
    assert life.memory.buried == [uuid.hex()]
    assert len(os.listdir("/proc/self/fd")) == descriptors
    with life.loop.roster.lock:
        life.loop.roster.forget([uuid.hex()])
    life.restart()
    life.tick()
    assert (life.shown(), life.loop.roster.attached) == (0, {}), "forgotten totals are not counted again"


def test_an_ended_worker_with_an_irremovable_segment_is_buried_at_once(
    life: Life, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    irremovable(prefix, monkeypatch)
    uuid = os.urandom(16)
    segment(prefix, "dead", uuid, ended=1)
    life.tick()
    assert life.loop.memory.buried == [uuid.hex()]
    assert (life.shown(), life.loop.roster.attached) == (1, {})
    life.tick()
    assert life.loop.directory.refused()[f"{prefix}dead"].reason == DENIED
    assert life.shown() == 1


def test_the_segment_of_a_worker_remembered_as_dead_is_drained_if_it_lives(
    life: Life, prefix: str, worker: Start
) -> None:
    uuid = os.urandom(16)
    remembered(life, prefix, uuid)
    file = os.fspath(SHM / f"{prefix}dead")
    process = worker(f"import fcntl\nf = open({file!r}, 'r+b')\nfcntl.lockf(f, fcntl.LOCK_EX, 1, 0)\npause()")
    process.paused()
    life.tick()
    assert Path(file).exists()
    assert list(life.loop.roster.attached) == [uuid.hex()]
    assert (life.shown(), list(life.loop.memory.gone), list(life.loop.memory.known)) == (1, [], [uuid.hex()])
    process.kill()
    life.tick()
    assert not Path(file).exists()
    assert (life.shown(), list(life.memory.gone), life.memory.buried) == (1, [uuid.hex()], [])


# ---- checkpoints, and limits


@pytest.mark.parametrize("lanes", ["all", "one more"])
def test_saved_cursors_are_ignored_if_there_are_more_than_lanes(life: Life, prefix: str, lanes: str) -> None:
    uuid = os.urandom(16)
    segment(prefix, "dead", uuid)
    life.tick()
    life.restart()
    known = life.loop.memory.known[uuid.hex()]
    known.name = "of the checkpoint"
    more = forge.header_value(golden("1.2"), "lanes") + (lanes != "all")
    known.cursors += [Cursor(0, 0, 0, 0, 0)] * (more - len(known.cursors))
    life.tick()
    assert (life.loop.memory.known[uuid.hex()] is known) == (lanes == "all")


def test_the_oldest_dead_workers_over_the_limit_are_merged(
    life: Life, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        segment(prefix, str(number), os.urandom(16), ended=1)
        life.tick()
    gone, taken = life.loop.memory.gone, sum(kept_of([each.reading for each in life.loop.memory.gone.values()]))
    first, *others = gone
    monkeypatch.setattr(retained_workers, "GONE_BYTES", taken)
    assert not life.loop.roster.remove_read(0, lambda: True)
    monkeypatch.setattr(retained_workers, "GONE_BYTES", taken - 1)
    assert not life.loop.roster.remove_read(0, lambda: False), "there is no time to remove the segment now"
    assert (list(gone), life.loop.roster.crowded) == ([first, *others], True)
    assert life.loop.roster.remove_read(0, lambda: True), "the memory changed, and must be saved"
    assert (list(gone), life.loop.roster.crowded) == (others, False)
    assert [each.workers for each in life.loop.memory.older.values()] == [1]
    assert life.shown() == 3


def test_the_successor_of_a_given_up_segment_is_given_up_too(life: Life, prefix: str) -> None:
    uuids = [os.urandom(16) for _ in range(3)]
    segment(prefix, "0", uuids[0])
    life.tick()
    for number in (1, 2):
        segment(prefix, str(number), uuids[number], took=int.from_bytes(uuids[number - 1][:8], "little"))
        (SHM / f"{prefix}{number - 1}").unlink()
        life.tick()
    attached = life.loop.roster.attached
    assert [each.stage for each in attached.values()] == 3 * [Stage.DRAINED]
    life.loop.roster.give_up(attached[uuids[2].hex()], SegmentRefused(f"{prefix}2", "made up"))
    assert [each.stage for each in attached.values()] == 3 * [Stage.OVER]
    assert life.loop.memory.known == {}


def test_a_segment_renamed_more_often_than_it_may_be_open_is_given_up(
    life: Life, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    segment(prefix, "0", os.urandom(16))
    life.tick()
    (attached,) = life.loop.roster.attached.values()

    def renamed(name: str, access: int) -> Segment:
        """Give a segment the name of another segment just before that other segment is opened."""
        os.rename(SHM / attached.segment.name, SHM / name)
        return open_segment(name, access)

    monkeypatch.setattr(admission, "open_segment", renamed)
    for number in range(1, admission.SPARES_MAX + 2):
        assert attached.stage is Stage.DRAINED
        segment(prefix, str(number), os.urandom(16))
        life.loop.look(SECOND)
        assert len(attached.spares) == number
        attached.segment.name = f"{prefix}{number}"
    assert attached.stage is Stage.OVER
    reason = f"was renamed {admission.SPARES_MAX} times while it was opened"
    assert reason in [each.reason for each in life.loop.directory.refused().values()]


def test_a_header_that_changes_after_the_opening_is_refused_and_its_file_closed(
    life: Life, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def damaged(name: str, access: int) -> Segment:
        opened = open_segment(name, access)
        os.pwrite(opened.fd, b"brick", 0)
        return opened

    monkeypatch.setattr(admission, "open_segment", damaged)
    segment(prefix, "0", os.urandom(16))
    before = os.listdir("/proc/self/fd")
    life.tick()
    assert (life.loop.roster.attached, life.loop.memory.known) == ({}, {})
    (refused,) = life.loop.directory.refused().values()
    assert refused.reason.startswith("not a segment: magic is ")
    assert os.listdir("/proc/self/fd") == before


def test_a_known_worker_without_a_segment_is_reported_as_missed(life: Life, prefix: str) -> None:
    segment(prefix, "0", os.urandom(16))
    life.tick()
    (known,) = life.loop.memory.known.values()
    known.name = "api/0"
    life.restart()
    (SHM / f"{prefix}0").unlink()
    life.tick()
    missed = "api/0 ended while no daemon ran: its totals are lost with its segment"
    assert ("worker_missed", missed) in life.logged
    assert life.loop.memory.known == {}


def test_a_worker_that_continued_elsewhere_without_a_daemon_keeps_its_deferred_work(life: Life, prefix: str) -> None:
    uuid = os.urandom(16)
    segment(prefix, "0", uuid)
    life.tick()
    (before,) = life.loop.memory.known.values()
    before.name = "api/7"
    assert before.deferred.counts["started"] > 0
    life.restart()
    (SHM / f"{prefix}0").unlink()
    segment(prefix, "1", new := os.urandom(16), took=int.from_bytes(uuid[:8], "little"))
    life.loop.look(life.second * SECOND)
    assert list(life.loop.memory.known) == [new.hex()]
    (known,) = life.loop.memory.known.values()
    assert (known.name, known.deferred.counts) == ("api/7", before.deferred.counts)
    assert "worker_missed" not in [kind for kind, _ in life.logged]


def test_a_known_worker_is_not_missing_while_a_file_is_unread(
    life: Life, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    segment(prefix, "0", os.urandom(16))
    life.tick()
    life.restart()
    known = dict(life.loop.memory.known)

    def no_memory(name: str, access: int) -> Segment:
        raise SegmentUndrained(name, "cannot be opened now: Cannot allocate memory")

    with monkeypatch.context() as full:
        full.setattr(admission, "open_segment", no_memory)
        life.tick()
    assert (life.loop.roster.attached, life.loop.memory.known) == ({}, known)
    life.tick()
    assert life.loop.roster.attached.keys() == known.keys()


def test_a_segment_drained_by_another_daemon_is_left_and_leaks_no_descriptor(
    life: Life, prefix: str, worker: Start
) -> None:
    segment(prefix, "0", os.urandom(16))
    file = os.fspath(SHM / f"{prefix}0")
    process = worker(f"import fcntl\nf = open({file!r}, 'r+b')\nfcntl.lockf(f, fcntl.LOCK_EX, 1, 1)\npause()")
    process.paused()
    before = len(os.listdir("/proc/self/fd"))
    life.tick()
    assert (life.loop.roster.attached, len(os.listdir("/proc/self/fd"))) == ({}, before)
    assert str(process.pid) in life.loop.directory.quarantined[f"{prefix}0"].refused.reason
    process.kill()
    life.tick()
    assert [each.segment.name for each in life.loop.roster.drained()] == [f"{prefix}0"]


@pytest.mark.parametrize("stays", [True, False])
def test_settings_end_with_the_daemon_and_the_attached_mark_stays(life: Life, prefix: str, stays: bool) -> None:
    segment(prefix, "0", os.urandom(16))
    life.loop.memory.wishes["s"] = Wish(spans=True)
    if not stays:
        life.loop.roster.stays = False
    life.tick()
    with open_segment(f"{prefix}0") as asked:
        assert (asked.control()["flags"], bool(asked.control()["attached"])) == (_reader.CONTROL_SPANS, stays)
        life.restart()
        assert (asked.control()["flags"], bool(asked.control()["attached"])) == (0, stays)


def test_a_worker_taken_for_dead_that_continues_keeps_name_and_deferred_work(life: Life, prefix: str) -> None:
    uuid = os.urandom(16)
    segment(prefix, "0", uuid, ended=1)
    life.tick()
    (gone,) = life.loop.memory.gone.values()
    gone.name = "api/7"
    segment(prefix, "1", os.urandom(16), took=int.from_bytes(uuid[:8], "little"))
    life.tick()
    (known,) = life.loop.memory.known.values()
    assert (life.loop.memory.gone, known.name, life.shown()) == ({}, "api/7", 1)
    assert known.deferred.counts["orphaned"] == gone.reading.deferred["orphaned"] > 0
    assert "worker_returned" in [kind for kind, _ in life.logged]


def test_device_work_of_a_dead_worker_is_orphaned(life: Life, prefix: str) -> None:
    segment(prefix, "0", os.urandom(16))
    life.tick()
    (known,) = life.loop.memory.known.values()
    assert (pending := known.deferred.pending) > 0
    life.second += 10
    life.tick()
    (gone,) = life.loop.memory.gone.values()
    assert (gone.reading.deferred["orphaned"], gone.reading.deferred["pending"]) == (pending, 0)
