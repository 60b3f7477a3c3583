"""Comparisons of workers whose first fingerprints were evicted."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest
from checked_record import CheckedRecord
from comparable_workers import MLP, NAMES, OFF, off

from brickd.analysis.numerics import fingerprint_export
from brickd.analysis.numerics.comparison import Comparison, EvidenceClass, Party, compare
from brickd.analysis.numerics.fingerprints import Numerics
from brickd.shm import _reader
from brickd.shm.sites import WorkerNames

STEP = _reader.CHECKED_STEP


def compared_after_eviction(
    one: list[CheckedRecord], other: list[CheckedRecord], *, step: int | None = None
) -> list[Comparison]:
    """Evict fingerprints of one worker, and then compare by run. Do this in the daemon's window and in copies of it."""
    numerics = Numerics(1)  # the smallest possible window of fingerprints
    first, second = (numerics.producer(uuid, "api", tables, "") for uuid in "ab")
    first.receive(one[0].slots())
    full(numerics)
    for producer, reported in ((first, one[1:]), (second, other)):
        producer.receive(b"".join(each.slots() for each in reported))
    return compared(numerics, step)


def tables() -> WorkerNames:
    return WorkerNames(NAMES, [None, *((n, 0, 0) for n in range(1, len(NAMES)))])


def full(numerics: Numerics) -> None:
    """Let another worker send enough fingerprints to evict the first ones."""
    another = numerics.producer("c", "api", tables, "")
    while not numerics.evicted:
        another.receive(CheckedRecord(off(9), site=OFF, step=9).slots())


def compared(numerics: Numerics, step: int | None = None) -> list[Comparison]:
    copy = numerics.about({"a", "b"})
    return [
        compare(of, [party(of, uuid) for uuid in "ab"], EvidenceClass.RUN, step=step)
        for of in (numerics, copy, exported_and_added(numerics), exported_and_added(copy))
    ]


def party(of: Numerics, uuid: str) -> Party:
    producer = of.producers[uuid]
    return Party(uuid, producer.number, worn=of.worn(producer))


def exported_and_added(of: Numerics) -> Numerics:
    """Return the window of fingerprints that a verb gets from the daemon."""
    other = Numerics()
    fingerprint_export.add_exported(other, json.loads(json.dumps(fingerprint_export.document(of))))
    return other


def repeated(*outputs: int, position: Sequence[int] = (), flags: int = STEP) -> list[CheckedRecord]:
    return [
        CheckedRecord(
            off(n, 0.1 * n), site=MLP, step=1, position=position[at] if position else 0, ticks=at, flags=flags
        )
        for at, n in enumerate(outputs)
    ]


@pytest.mark.ci
def test_repeats_with_evicted_first_ones_are_not_paired_by_equal_counts() -> None:
    for found in compared_after_eviction(repeated(1, 2, 3, 4), repeated(1, 2, 3)):
        assert (found.diverged, found.not_comparable) == (0, {"repeats": 1})
    for found in compared_after_eviction(repeated(1, 2, flags=STEP | _reader.CHECKED_POSITION), repeated(1)):
        assert (found.diverged, found.not_comparable) == (0, {"repeats": 1})
    assert {found.verdict for found in compared_after_eviction(repeated(1, 1, 1, 1), repeated(1, 1, 1))} == {
        "identical"
    }


def test_repeats_of_workers_that_started_after_an_eviction_are_paired_in_order() -> None:
    numerics = Numerics(1)
    full(numerics)
    for uuid, reported in (("a", repeated(1, 2, 3)), ("b", repeated(1, 7, 3))):
        numerics.producer(uuid, "api", tables, "").receive(b"".join(each.slots() for each in reported))
    for each in compared(numerics):
        assert (each.compared, each.diverged, each.not_comparable) == (3, 1, {})


def test_recorded_positions_match_after_evictions() -> None:
    for found in compared_after_eviction(repeated(1, 2, 3, 4, position=range(4)), repeated(1, 2, 7, position=range(3))):
        assert (found.compared, found.diverged) == (2, 1)


def test_a_step_after_the_workers_first_look_is_unaffected_by_evictions() -> None:
    before = replace(repeated(1)[0], step=0)
    later = [replace(each, ticks=each.ticks + 9) for each in repeated(1, 2, 3)]
    sides = [before, before, *later], [before, *later[:2], replace(later[2], output=off(7, 0.7))]
    for found in (*compared_after_eviction(*sides), *compared_after_eviction(*sides, step=1)):
        assert found.diverged == 1
