"""Counts of the last hour: which slots count at which time, and the number of slots."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brickd.analysis.numerics.recent_counts import (
    SLOT_NS,
    SLOTS,
    WINDOW_NS,
    FingerprintCounts,
    Recent,
    added,
    of_document,
    plain,
    within,
)

ONE = FingerprintCounts(4, 1, 1, 2)
AT = 1_000 * SLOT_NS


def test_a_count_is_included_for_exactly_an_hour() -> None:
    recent = added((), AT, ONE)
    assert within(recent, AT) == ONE
    assert within(recent, AT + WINDOW_NS - 1) == ONE
    assert within(recent, AT + WINDOW_NS) == FingerprintCounts()
    assert added(recent, AT + WINDOW_NS, ONE) == added((), AT + WINDOW_NS, ONE)


def test_the_window_is_an_hour_in_slots_of_five_minutes() -> None:
    assert (SLOT_NS, SLOTS, WINDOW_NS) == (300 * 10**9, 12, 3_600 * 10**9)
    before = added((), AT - (SLOTS - 1) * SLOT_NS, ONE)
    assert within(before, AT) == ONE
    assert within(before, AT + SLOT_NS) == FingerprintCounts()


def test_counts_of_one_slot_are_added_and_slots_are_separate() -> None:
    recent = added(added(added((), AT, ONE), AT + SLOT_NS - 1, ONE), AT + SLOT_NS, ONE)
    assert [counts.fingerprints for _, counts in recent] == [8, 4]
    assert within(recent, AT + SLOT_NS) == FingerprintCounts(12, 3, 3, 6)
    assert within(recent, AT + WINDOW_NS) == ONE


def test_counts_in_the_future_are_ignored_and_dropped() -> None:
    recent = added((), AT + SLOT_NS, ONE)
    assert within(recent, AT) == FingerprintCounts()
    assert added(recent, AT, ONE) == added((), AT, ONE)


@given(st.lists(st.integers(0, 40 * SLOT_NS), max_size=40))
def test_the_number_of_slots_is_bounded_whatever_the_clock_does(times: list[int]) -> None:
    recent: Recent = ()
    for at_ns in times:
        recent = added(recent, at_ns, ONE)
    assert len(recent) <= SLOTS
    assert of_document(json.loads(json.dumps(plain(recent)))) == recent


def test_a_document_with_too_many_slots_or_invalid_values_is_refused() -> None:
    for rows in ([[n, 1, 1, 1, 1] for n in range(SLOTS + 1)], [[1, 2, 3, 4]], [[1, 2, 3, 4, -1]], "x"):
        with pytest.raises((ValueError, TypeError)):
            of_document(rows)


def test_compared_counts_never_exceed_met_ones() -> None:
    assert (ONE.compared, ONE.alone) == (2, 0)
    late = FingerprintCounts(10, 2, 3, 60)
    assert (late.compared, late.alone) == (5, 0)
    assert FingerprintCounts(10, 2, 3, 1).alone == 4
    assert FingerprintCounts(1, 1, 1, 1).compared == 0
