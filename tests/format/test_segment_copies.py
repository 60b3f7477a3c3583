"""If two files of the same user have the same uuid, at most one of them counts."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import SHM
from faults import Start
from forge import with_header
from removals import dead_image, record_of
from verbs import started

from brickd.base.paths import runtime
from brickd.base.units import SECOND
from brickd.daemon.collector import Collector
from brickd.datasources.shared_memory import SharedMemory
from brickd.model.worker_survey import survey
from brickd.shm import _reader
from brickd.shm.segment_files import identifier_of
from brickd.state.checkpoint import decode, save
from brickd.state.daemon_state import Memory

UUID = bytes(range(16))
# starts a process that holds the lock of a file; returns the function that ends the process
Hold = Callable[[str], Callable[[], None]]


class Life:
    """Successive daemon loops of one prefix; each starts with the checkpoint of the previous loop."""

    def __init__(self, prefix: str) -> None:
        self.prefix, self.second = prefix, 0
        self.loop: Collector
        self.start(Memory(prefix))

    def start(self, memory: Memory) -> None:
        self.loop = Collector(memory, lambda kept: save(runtime().checkpoint, kept), lambda *_, **__: None, clock=int)

    def look(self) -> None:
        self.second += 1
        self.loop.tick(self.second * SECOND, look=True)

    def restart(self) -> None:
        self.loop.end(self.second * SECOND)
        self.start(decode(runtime().checkpoint.read_bytes()))

    @property
    def drained(self) -> list[str]:
        return [each.segment.name.removeprefix(self.prefix) for each in self.loop.roster.drained()]

    def shown(self) -> tuple[list[str], dict[str, str]]:
        """Return the files that a verb counts when a daemon runs, and the reasons why it does not count the other
        files.
        """
        with self.loop.roster.lock:
            found = survey(self.prefix, self.loop.memory.background(), self.loop.roster.held())
        refused = {each.path.removeprefix(self.prefix): each.reason for each in found.refused}
        return [each.reading.file.removeprefix(self.prefix) for each in found.workers], refused


@pytest.fixture
def life(prefix: str) -> Iterator[Life]:
    """Return the daemon loops of one test."""
    one = Life(prefix)
    yield one
    one.loop.end(100 * SECOND)


def place(prefix: str, *names: str) -> None:
    """Create segments with one uuid."""
    for name in names:
        draft = SHM / f".{prefix}{name}"
        draft.write_bytes(with_header(uuid=UUID))
        draft.rename(SHM / f"{prefix}{name}")


def place_dead(prefix: str, name: str, spans: int) -> None:
    """Create a dead segment with the same uuid and this number of spans."""
    draft = SHM / f".{prefix}{name}"
    draft.write_bytes(dead_image(UUID, spans))
    draft.rename(SHM / f"{prefix}{name}")


@pytest.fixture
def held(worker: Start, prefix: str) -> Hold:
    """Start a process that holds a file's lock; return a function that ends the process."""

    def hold(name: str) -> Callable[[], None]:
        file = os.fspath(SHM / f"{prefix}{name}")
        process = started(
            worker, f"import fcntl\nf = open({file!r}, 'r+b')\nfcntl.lockf(f, fcntl.LOCK_EX, 1, 0)\npause()"
        )
        return process.kill

    return hold


def test_the_file_known_to_the_checkpoint_wins_in_any_order(life: Life, prefix: str, held: Hold) -> None:
    place(prefix, "b")
    held("b")
    life.look()
    life.look()
    assert life.drained == ["b"]
    place(prefix, "a")
    held("a")
    life.look()
    assert life.drained == ["b"]
    life.restart()
    life.look()
    assert life.drained == ["b"]
    assert life.shown() == (["b"], {"a": f"is a copy of {prefix}b: both have the same uuid"})
    known = life.loop.memory.known[UUID.hex()]
    assert known.file == identifier_of(f"{prefix}b")


def test_without_a_checkpoint_two_live_copies_are_read_after_one_ends(life: Life, prefix: str, held: Hold) -> None:
    place(prefix, "a", "b")
    held("a")
    ends = held("b")
    for _ in range(2):
        life.look()
        shown, refused = life.shown()
        assert (life.drained, shown, set(refused)) == ([], [], {"a", "b"})
        assert "both have a live worker: neither is read until one worker ends" in refused["a"]
    ends()
    for _ in range(2):
        life.look()
    assert life.drained == ["a"]
    assert life.shown() == (["a"], {"b": f"is a copy of {prefix}a: both have the same uuid"})


@pytest.mark.parametrize("alive", ["a", "b"])
def test_without_a_checkpoint_the_only_live_copy_wins(life: Life, prefix: str, held: Hold, alive: str) -> None:
    place(prefix, "a", "b")
    held(alive)
    for _ in range(2):
        life.look()
    assert life.drained == [alive]
    assert life.shown()[0] == [alive]


def test_one_of_two_dead_copies_counts(life: Life, prefix: str) -> None:
    place(prefix, "a", "b")
    life.look()
    shown, refused = life.shown()
    assert (shown, list(refused)) == (["a"], ["b"])


def test_of_two_dead_copies_the_one_with_more_spans_counts(life: Life, prefix: str) -> None:
    for name, spans in (("a", 5), ("b", 9), ("c", 7)):
        place_dead(prefix, name, spans)
    (alone,) = survey(prefix).workers
    assert (alone.reading.file, alone.ledger.spans["begun"]) == (f"{prefix}b", 9)
    for _ in range(10):
        life.look()
        found = survey(prefix, life.loop.memory.background(), life.loop.roster.held())
        assert [each.ledger.spans["begun"] for each in found.workers] == [9]


def test_a_record_adds_counts_missing_from_an_earlier_segment_copy(life: Life, prefix: str) -> None:
    place_dead(prefix, "copy", 5)
    assert _reader.append_removed(prefix, record_of(UUID, 9))
    for _ in range(10):
        found = survey(prefix, life.loop.memory.background(), life.loop.roster.held())
        assert sum(each.ledger.spans["begun"] for each in found.workers) == 5
        assert sum(each.counts.spans for each in found.removed) == 4
        life.look()
    assert not (SHM / f"{prefix}copy").exists()
    # The counts are the same if the copy cannot be removed.
    background = replace(life.loop.memory.background(), buried=frozenset({UUID.hex()}))
    assert sum(each.counts.spans for each in survey(prefix, background).removed) == 4


def test_a_copy_that_replaces_a_drained_one_waits_until_it_is_gone(life: Life, prefix: str) -> None:
    place_dead(prefix, "a", 5)
    place_dead(prefix, "b", 5)
    life.look()
    life.look()
    place_dead(prefix, "a", 5)  # another file gets the name of the drained file
    for _ in range(10):
        life.look()
    assert [each.ledger.spans["begun"] for each in survey(prefix, life.loop.memory.background()).workers] == [5]
    assert not list(SHM.glob(f"{prefix}*"))


@pytest.mark.ci
def test_the_same_rules_apply_without_a_daemon(prefix: str, held: Hold) -> None:
    def shown() -> list[str]:
        return [each.reading.file.removeprefix(prefix) for each in SharedMemory().survey().workers]

    place(prefix, "a", "b", "c")
    assert shown() == ["a"]
    ends = held("b")
    assert shown() == ["b"]
    held("c")
    assert shown() == []
    Path(SHM / f"{prefix}a").unlink()
    ends()
    life = Life(prefix)
    for _ in range(2):
        life.look()
    life.loop.end(3 * SECOND)
    held("b")
    assert shown() == ["c"], "the checkpoint knows this file"


def test_a_copy_is_judged_again_when_the_original_is_gone(life: Life, prefix: str, held: Hold) -> None:
    place(prefix, "b")
    ends = held("b")
    life.look()
    place(prefix, "a")
    held("a")
    life.look()
    assert (life.drained, list(life.shown()[1])) == (["b"], ["a"])
    ends()
    for _ in range(10):
        life.look()
    assert not (SHM / f"{prefix}b").exists(), "the worker of this file has ended"
    assert (life.drained, life.shown()) == (["a"], (["a"], {}))
