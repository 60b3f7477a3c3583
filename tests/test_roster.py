"""Who is drained, and for whom there is no room."""

from __future__ import annotations

import os
from collections.abc import Callable

import forge
import pytest
from conftest import SHM
from forge import U64, golden, put, seal, with_header

from brickd import roster, workers
from brickd.checkpoint import decode, save
from brickd.collector import SECOND, Collector
from brickd.errors import NotPermitted
from brickd.files import File
from brickd.memory import Background, Memory
from brickd.runtime import runtime
from brickd.workers import survey
from brickd.world import SharedMemory

PLACES = 8
NOBODY = 1234


def place(prefix: str, number: int, uid: int) -> str:
    """A segment of that user's."""
    file = f"{prefix}{number}"
    (SHM / file).write_bytes(seal(bytearray(with_header(uuid=os.urandom(16), uid=uid))))
    os.chown(SHM / file, uid, -1)
    return file


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of other users")
def test_another_user_has_a_quarter_of_the_places_and_leaves_the_others_theirs(prefix: str) -> None:
    theirs = [place(prefix, number, NOBODY) for number in range(20)]
    ours = [place(prefix, number, 0) for number in range(20, 24)]
    said: list[str] = []
    loop = Collector(Memory(prefix), lambda _: None, lambda kind, text, **_: said.append(text), workers_max=PLACES)
    try:
        loop.tick(0)
        attached = {each.segment.name: each.segment.uid for each in loop.roster.attached.values()}
        assert sorted(attached.values()) == [0] * 4 + [NOBODY] * 2
        refused = {file: each.refused.reason for file, each in loop.directory.quarantined.items()}
        assert set(refused) == set(theirs) - set(attached)
        assert set(refused.values()) == {"not drained: 2 workers of user 1234 are, and no more"}
        assert set(ours) < set(attached)
        # Nobody lives in them: after five seconds they are dead, removed, and others have their places.
        for second in (1, 7, 14):
            loop.tick(second * SECOND, look=True)
        assert not {SHM / file for file in attached} & set(SHM.iterdir())
        assert [each.segment.uid for each in loop.roster.attached.values()] == [NOBODY] * 2
    finally:
        loop.end(20 * SECOND)


def test_there_are_only_so_many_places(prefix: str) -> None:
    for number in range(PLACES + 3):
        place(prefix, number, os.geteuid())
    loop = Collector(Memory(prefix), lambda _: None, lambda *_, **__: None, workers_max=PLACES)
    try:
        loop.tick(0)
        assert len(loop.roster.attached) == PLACES
        reasons = {each.refused.reason for each in loop.directory.quarantined.values()}
        assert (len(loop.directory.quarantined), reasons) == (3, {"not drained: 8 workers are, and no more"})
    finally:
        loop.end(SECOND)


def segment(prefix: str, name: str, uuid: bytes, uid: int, **process: int) -> None:
    """A segment with a few starts of deferred work in its ring."""
    image = bytearray(golden("1.2"))
    put(image, "header", {"uuid": uuid, "uid": uid, "service": b"s"})
    for lane in range(forge.header_value(image, "lanes")):
        put(image, "consumer", {"event": (0, U64), "events_read": 0}, lane)
    for field, value in process.items():
        at = forge.place(image, "process") + forge.later("process", field)
        image[at : at + 8] = value.to_bytes(8, "little")
    draft = SHM / f".{prefix}{name}"
    draft.write_bytes(seal(image))
    os.chown(draft, uid, -1)
    draft.rename(SHM / f"{prefix}{name}")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of other users")
@pytest.mark.parametrize("removed", [False, True])
def test_who_says_that_another_users_worker_goes_on_here_takes_nothing_along(prefix: str, removed: bool) -> None:
    victim = bytes(range(16))
    memory, kept = Memory(prefix), bytearray()
    segment(prefix, "victim", victim, 0)
    loop = Collector(memory, lambda content: kept.__setitem__(slice(None), content), lambda *_, **__: None)
    loop.tick(0)
    loop.tick(SECOND)
    started = memory.known[victim.hex()].deferred.counts["started"]
    assert started > 0
    loop.end(2 * SECOND)
    if removed:
        (SHM / f"{prefix}victim").unlink()
    thief = os.urandom(16)
    segment(prefix, "thief", thief, NOBODY, took=int.from_bytes(victim[:8], "little"))
    again = Collector(decode(bytes(kept)), lambda _: None, lambda *_, **__: None)
    again.tick(3 * SECOND)
    try:
        counts = again.memory.known[thief.hex()].deferred.counts
        assert (counts["started"], counts["refused"]) == (started, 0), "as it tells of itself"
        if not removed:
            assert again.memory.known[victim.hex()].deferred.counts["started"] == started
    finally:
        again.end(4 * SECOND)


def test_what_was_forgotten_stays_so_though_its_segment_cannot_be_removed_yet(prefix: str) -> None:
    segment(prefix, "dead", os.urandom(16), os.geteuid(), ended=1)

    def full(_: bytes) -> None:
        raise OSError(28, "No space left on device")

    loop = Collector(Memory(prefix), full, lambda *_, **__: None)
    loop.tick(0)
    assert len(loop.memory.gone) == 1
    (uuid,) = loop.memory.gone
    with loop.roster.lock:
        loop.roster.forget([uuid])
    for second in (2, 8, 14):
        loop.tick(second * SECOND, look=True)
    with loop.roster.lock:
        found = survey(prefix, loop.memory.background(), loop.roster.held()).workers
    assert found == []
    loop.end(20 * SECOND)


def test_a_dead_worker_whose_segment_may_not_be_removed_is_counted_once_however_many_die_later(
    prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(roster, "GONE_MAX", 1)
    kept = bytearray()

    def keep(content: bytes) -> None:
        kept[:] = content

    def refused(self: File) -> bool:
        raise NotPermitted("made up")

    def run(*, until: Callable[[Collector], bool] = lambda _: False) -> Collector:
        memory = decode(bytes(kept)) if kept else Memory(prefix)
        loop = Collector(memory, keep, lambda *_, **__: None)
        for second in range(0, 30, 2):
            loop.tick(second * SECOND, look=True)
            if until(loop):
                break
        return loop

    monkeypatch.setattr(File, "unlink", refused)
    for number in range(4):
        segment(prefix, str(number), os.urandom(16), os.geteuid(), ended=1)
        with monkeypatch.context() as killed:
            killed.setattr(roster.Roster, "remove_read", lambda self, now_ns: False)  # it is killed just before that
            loop = run(until=lambda loop: bool(kept) and len(decode(bytes(kept)).gone) > 0)
        for each in loop.roster.attached.values():
            each.segment.close()
        loop = run()
        with loop.roster.lock:
            found = survey(prefix, loop.memory.background(), loop.roster.held()).workers
        assert sum(each.together for each in found) == number + 1
        for each in loop.roster.attached.values():
            each.segment.close()


def test_a_worker_whose_segment_is_removed_while_somebody_reads_is_counted(prefix: str) -> None:
    segment(prefix, "ended", os.urandom(16), os.geteuid(), ended=1)
    loop = Collector(Memory(prefix), lambda _: None, lambda *_, **__: None)
    loop.look(0)
    with loop.roster.reading:
        with loop.roster.lock:
            background, held = loop.memory.background(), loop.roster.held()
        loop.tick(SECOND)
        assert not (SHM / f"{prefix}ended").exists(), "the loop waits for nobody who reads"
        (found,) = survey(prefix, background, held).workers
        with loop.roster.lock:
            (afterwards,) = survey(prefix, loop.memory.background(), loop.roster.held()).workers
    assert (found.name, found.ledger.spans) == (afterwards.name, afterwards.ledger.spans)
    loop.end(2 * SECOND)


def test_a_worker_that_goes_on_in_another_segment_while_somebody_reads_is_counted_once(prefix: str) -> None:
    uuid = os.urandom(16)
    segment(prefix, "lost", uuid, os.geteuid())
    loop = Collector(Memory(prefix), lambda _: None, lambda *_, **__: None)
    loop.look(0)
    with loop.roster.lock:
        background, held = loop.memory.background(), loop.roster.held()
    segment(prefix, "new", os.urandom(16), os.geteuid(), took=int.from_bytes(uuid[:8], "little"))
    (SHM / f"{prefix}lost").unlink()
    (found,) = survey(prefix, background, held).workers
    assert found.reading.file == f"{prefix}new"
    loop.end(SECOND)


def test_a_worker_that_a_daemon_removes_while_shared_memory_is_read_is_counted(
    prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    segment(prefix, "ended", os.urandom(16), os.geteuid(), ended=1)
    loop = Collector(Memory(prefix), lambda kept: save(runtime().checkpoint, kept), lambda *_, **__: None)
    whole, readers = workers.survey, 0

    def read_late(background: Background) -> workers.Survey:
        nonlocal readers
        readers += 1
        if readers == 1:  # it does not answer yet
            loop.tick(0)
        return whole(background=background)

    monkeypatch.setattr(workers, "survey", read_late)
    (found,) = SharedMemory().survey().workers
    assert (readers, found.reading.ended) == (2, True)
    assert not (SHM / f"{prefix}ended").exists()
    loop.end(SECOND)
