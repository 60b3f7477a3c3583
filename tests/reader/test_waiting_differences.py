"""Fingerprints that differ, perhaps only because of rounding: they wait until this is decided."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Sequence

import pytest
from checked_record import CheckedRecord, Tensor
from summation_orders import BIT, OTHER, USUAL, tensor

from brickd.shm import _reader

MiB = 1 << 20
INT64 = 5  # the dtype int64, which has no rounding
SITES = array("Q", range(1, 1_001))
BY_ROUNDING = pytest.mark.parametrize("what", [pytest.param(BIT, id="once"), pytest.param(OTHER, id="spread")])


def add_records(fingerprints: _reader.Fingerprints, records: Sequence[CheckedRecord]) -> None:
    """Add records; do not fetch those that wait."""
    fingerprints.add(0, 0, 0, SITES, SITES, b"".join(each.slots() for each in records), True)


def unlike(content: int, what: int, site: int = 1) -> list[CheckedRecord]:
    """Return two different fingerprints for one input."""
    return [CheckedRecord(tensor(content, each), (Tensor(1_000 + content),), site=site) for each in (USUAL, what)]


@BY_ROUNDING
def test_a_site_with_many_rounding_differences_hides_no_other(what: int) -> None:
    fingerprints = _reader.Fingerprints(64 * MiB)
    add_records(fingerprints, [CheckedRecord(Tensor(n, dtype=INT64), (Tensor(1),), site=3) for n in range(2)])
    for content in range(300):
        add_records(fingerprints, unlike(content, what))
    first, second = fingerprints.unlike()
    assert (first, second % 2, second > 2) == (1, 1, True)
    assert fingerprints.unlike_all == 2


@pytest.mark.ci
@BY_ROUNDING
def test_an_evicted_waiting_difference_is_replaced_by_the_next(what: int) -> None:
    fingerprints, waiting = _reader.Fingerprints(1), list[tuple[int, int]]()  # the smallest window
    for turn in range(4):
        add_records(fingerprints, unlike(2 * turn, what))
        filling = range(10_000 + 1_000 * turn, 10_000 + 1_000 * turn + 1_000)
        add_records(fingerprints, [CheckedRecord(Tensor(1), (Tensor(n),), site=2) for n in filling])
        add_records(fingerprints, unlike(2 * turn + 1, what))
        waiting.append((fingerprints.end - 1, *fingerprints.unlike()))  # type: ignore[arg-type]
    assert all(last == taken for last, taken in waiting)


@BY_ROUNDING
def test_each_of_several_differences_of_a_site_waits_equally_often(what: int) -> None:
    fingerprints, several, sites = _reader.Fingerprints(64 * MiB), 4, 120
    for site in range(1, sites + 1):
        for turn in range(several):
            add_records(fingerprints, unlike(several * site + turn, what, site))
    taken = fingerprints.unlike()
    assert [number // (2 * several) for number in taken] == list(range(sites))
    times = Counter(number // 2 % several for number in taken)
    assert {turn: 15 < times[turn] < 45 for turn in range(several)} == dict.fromkeys(range(several), True), times
