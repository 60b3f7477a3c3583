"""Which workers the daemon drains, and which are beyond its limits."""

from __future__ import annotations

import os
from collections.abc import Callable

import forge
import pytest
from conftest import SHM
from forge import U64, golden, put, seal, with_header

from brickd.base.paths import runtime
from brickd.base.units import SECOND
from brickd.daemon import roster
from brickd.daemon.collector import Collector
from brickd.datasources.shared_memory import SharedMemory
from brickd.errors import NotPermitted
from brickd.model import retained_workers, worker_survey
from brickd.model.background import Background
from brickd.model.worker_survey import survey
from brickd.model.workers import Survey
from brickd.shm.segment_files import SegmentFile
from brickd.state.checkpoint import decode, save
from brickd.state.daemon_state import Memory

PLACES = 8


def test_workers_beyond_the_limit_are_quarantined(prefix: str) -> None:
    for number in range(PLACES + 3):
        (SHM / f"{prefix}{number}").write_bytes(with_header(uuid=os.urandom(16)))
    loop = Collector(Memory(prefix), lambda _: None, lambda *_, **__: None, workers_max=PLACES, clock=int)
    try:
        loop.tick(0)
        assert len(loop.roster.attached) == PLACES
        reasons = {each.refused.reason for each in loop.directory.quarantined.values()}
        assert (len(loop.directory.quarantined), reasons) == (
            3,
            {"not drained: the limit of 8 workers is reached (raise ulimit -n)"},
        )
    finally:
        loop.end(SECOND)


def segment(prefix: str, name: str, uuid: bytes, **process: int) -> None:
    """Create a segment with a few deferred starts in its ring."""
    image = bytearray(golden("1.2"))
    put(image, "header", {"uuid": uuid, "service": b"s"})
    for lane in range(forge.header_value(image, "lanes")):
        put(image, "consumer", {"event": (0, U64), "events_read": 0}, lane)
    for field, value in process.items():
        at = forge.place(image, "process") + forge.later("process", field)
        image[at : at + 8] = value.to_bytes(8, "little")
    draft = SHM / f".{prefix}{name}"
    draft.write_bytes(seal(image))
    draft.rename(SHM / f"{prefix}{name}")


def test_a_forgotten_worker_stays_forgotten_while_its_segment_cannot_be_removed(prefix: str) -> None:
    segment(prefix, "dead", os.urandom(16), ended=1)

    def full(_: bytes) -> None:
        raise OSError(28, "No space left on device")

    loop = Collector(Memory(prefix), full, lambda *_, **__: None, clock=int)
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


@pytest.mark.ci
def test_a_dead_worker_with_an_irremovable_segment_counts_once_whatever_else_dies(
    prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retained_workers, "GONE_MAX", 1)
    kept = bytearray()

    def keep(content: bytes) -> None:
        kept[:] = content

    def refused(self: SegmentFile) -> bool:
        raise NotPermitted("made up")

    def run(*, until: Callable[[Collector], bool] = lambda _: False) -> Collector:
        memory = decode(bytes(kept)) if kept else Memory(prefix)
        loop = Collector(memory, keep, lambda *_, **__: None, clock=int)
        for second in range(0, 30, 2):
            loop.tick(second * SECOND, look=True)
            if until(loop):
                break
        return loop

    monkeypatch.setattr(SegmentFile, "unlink", refused)
    for number in range(4):
        segment(prefix, str(number), os.urandom(16), ended=1)
        with monkeypatch.context() as killed:
            # the daemon is killed just before it removes segments
            killed.setattr(roster.Roster, "remove_read", lambda *_: False)
            loop = run(until=lambda loop: bool(kept) and len(decode(bytes(kept)).gone) > 0)
        for each in loop.roster.attached.values():
            each.segment.close()
        loop = run()
        with loop.roster.lock:
            found = survey(prefix, loop.memory.background(), loop.roster.held()).workers
        assert sum(each.together for each in found) == number + 1
        for each in loop.roster.attached.values():
            each.segment.close()


def test_a_worker_whose_segment_is_removed_during_a_read_is_counted(prefix: str) -> None:
    segment(prefix, "ended", os.urandom(16), ended=1)
    loop = Collector(Memory(prefix), lambda _: None, lambda *_, **__: None, clock=int)
    loop.look(0)
    with loop.roster.reading:
        with loop.roster.lock:
            background, held = loop.memory.background(), loop.roster.held()
        loop.tick(SECOND)
        assert not (SHM / f"{prefix}ended").exists(), "the loop does not wait for readers"
        (found,) = survey(prefix, background, held).workers
        with loop.roster.lock:
            (afterwards,) = survey(prefix, loop.memory.background(), loop.roster.held()).workers
    assert (found.name, found.ledger.spans) == (afterwards.name, afterwards.ledger.spans)
    loop.end(2 * SECOND)


def test_a_worker_that_continues_elsewhere_during_a_read_counts_once(prefix: str) -> None:
    uuid = os.urandom(16)
    segment(prefix, "lost", uuid)
    loop = Collector(Memory(prefix), lambda _: None, lambda *_, **__: None, clock=int)
    loop.look(0)
    with loop.roster.lock:
        background, held = loop.memory.background(), loop.roster.held()
    segment(prefix, "new", os.urandom(16), took=int.from_bytes(uuid[:8], "little"))
    (SHM / f"{prefix}lost").unlink()
    (found,) = survey(prefix, background, held).workers
    assert found.reading.file == f"{prefix}new"
    loop.end(SECOND)


def test_a_worker_removed_by_a_daemon_during_a_read_is_counted(prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    segment(prefix, "ended", os.urandom(16), ended=1)
    loop = Collector(Memory(prefix), lambda kept: save(runtime().checkpoint, kept), lambda *_, **__: None, clock=int)
    whole, readers = worker_survey.survey, 0

    def read_late(background: Background) -> Survey:
        nonlocal readers
        readers += 1
        if readers == 1:  # the first reader has not finished yet
            loop.tick(0)
        return whole(background=background)

    monkeypatch.setattr(worker_survey, "survey", read_late)
    (found,) = SharedMemory().survey().workers
    assert (readers, found.reading.ended) == (2, True)
    assert not (SHM / f"{prefix}ended").exists()
    loop.end(SECOND)


def test_a_worker_taken_for_dead_that_continues_elsewhere_counts_once(prefix: str) -> None:
    uuid = os.urandom(16)
    segment(prefix, "lost", uuid, ended=1)
    loop = Collector(Memory(prefix), lambda kept: save(runtime().checkpoint, kept), lambda *_, **__: None, clock=int)
    loop.tick(0)
    assert list(loop.memory.gone) == [uuid.hex()]
    loop.end(SECOND)
    segment(prefix, "new", os.urandom(16), took=int.from_bytes(uuid[:8], "little"))
    (found,) = SharedMemory().survey().workers
    assert found.reading.file == f"{prefix}new"
