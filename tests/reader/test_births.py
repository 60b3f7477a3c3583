"""Births (places where NaN and infinities begin) in a window of fingerprints are equal to those of a plain count."""

from __future__ import annotations

from array import array
from typing import Any

import pytest
from checked_record import NUMBERS, CheckedRecord, Tensor, add
from hypothesis import given
from hypothesis import strategies as st

from brickd.shm import _reader

MiB = 1 << 20
INPUT, UNREAD = Tensor(7), Tensor(7, dtype=0)
OUTPUTS = (Tensor(1), Tensor(2, nan=1), Tensor(2, pos_inf=3), Tensor(2, neg_inf=2), Tensor(2, nan=1, neg_inf=1))
INPUTS = ((INPUT,), (), (INPUT, Tensor(8, nan=1)), (Tensor(7, pos_inf=1),), (INPUT, UNREAD), (INPUT, INPUT))
WORKERS = st.lists(st.integers(0, 5), min_size=1, max_size=4)
RECORD = st.tuples(st.integers(0, 5), st.integers(1, 3), st.sampled_from(OUTPUTS), st.sampled_from(INPUTS))


def is_finite(tensors: tuple[Tensor, ...]) -> bool:
    return bool(tensors) and all(each.dtype and not (each.nan or each.pos_inf or each.neg_inf) for each in tensors)


class Counted:
    """The fingerprints of one worker at one site."""

    def __init__(self) -> None:
        self.fingerprints = 0
        self.kinds = [[0, 0], [0, 0], [0, 0]]

    def add(self, output: Tensor, inputs: tuple[Tensor, ...]) -> None:
        self.fingerprints += 1
        for kind, held in zip(self.kinds, (output.nan, output.pos_inf, output.neg_inf), strict=True):
            if held and is_finite(inputs):
                kind[:] = [kind[0] or self.fingerprints, kind[1] + 1]

    def born(self) -> bool:
        return any(times for _, times in self.kinds)


def rows(counted: dict[tuple[int, int], Counted]) -> list[tuple[Any, ...]]:
    """Return the rows of all workers at sites where NaN or an infinity began."""
    born = {site for (site, _), each in counted.items() if each.born()}
    return sorted(
        (0, NUMBERS[site], worker, each.fingerprints, *map(tuple, each.kinds))
        for (site, worker), each in counted.items()
        if site in born
    )


@given(st.lists(st.lists(RECORD, max_size=20) | WORKERS.map(tuple), max_size=6))
def test_births_match_a_plain_count(turns: list[Any]) -> None:
    """Each turn adds fingerprints, or removes the counts of a worker."""
    fingerprints, counted = _reader.Fingerprints(MiB), dict[tuple[int, int], Counted]()
    for turn in turns:
        if isinstance(turn, tuple):
            fingerprints.mute(turn)
            counted = {(site, worker): each for (site, worker), each in counted.items() if worker not in turn}
            continue
        for worker, site, output, inputs in turn:
            add(fingerprints, worker, [CheckedRecord(output, inputs, site=site)])
            counted.setdefault((site, worker), Counted()).add(output, inputs)
    assert sorted(fingerprints.births()) == rows(counted)


def test_births_of_two_services_are_complete() -> None:
    fingerprints = _reader.Fingerprints(MiB, True)
    for service in (3, 4):
        add(fingerprints, service, [CheckedRecord(OUTPUTS[1], (INPUT,), site=site) for site in (1, 2)], service)
    none = (0, 0)
    assert sorted(fingerprints.births()) == [
        (service, NUMBERS[site], service, 1, (1, 1), none, none) for service in (3, 4) for site in (1, 2)
    ]


@pytest.mark.ci
def test_each_of_many_services_has_its_share_of_rows_and_counts() -> None:
    # the number of services, and of sites in each service (more than the limit for one service)
    services, sites = 64, 1_024 + 5
    numbers = array("Q", range(1, sites + 1))
    fingerprints = _reader.Fingerprints(64 * MiB, True)
    for service in range(1, services):
        add(fingerprints, 9, [CheckedRecord(OUTPUTS[0], (INPUT,), site=1)], service)
    for worker, output, count in ((0, OUTPUTS[0], 130), (1, OUTPUTS[1], sites)):
        records = b"".join(CheckedRecord(output, (INPUT,), site=site).slots() for site in range(count))
        fingerprints.add(worker, 0, 0, numbers, numbers, records, True)
        assert fingerprints.first == 0
    assert fingerprints.untracked == 130 + 5
    assert len(fingerprints.births()) == 8_192 // services
    fingerprints.drop(0)
    assert fingerprints.untracked == 130 + 5, "dropping a service does not lower this count"


def test_births_at_many_sites_come_with_the_counts_of_workers_without_any() -> None:
    fingerprints, none = _reader.Fingerprints(MiB), (0, 0)
    numbers = array("Q", range(1, 65))
    for worker, output in ((0, OUTPUTS[0]), (1, OUTPUTS[1])):
        records = b"".join(CheckedRecord(output, (INPUT,), site=site).slots() for site in range(64))
        fingerprints.add(worker, 0, 0, numbers, numbers, records, True)
    born = [(0, site, 1, 1, (1, 1), none, none) for site in numbers]
    assert sorted(fingerprints.births()) == sorted([*born, *((0, site, 0, 1, none, none, none) for site in numbers)])
