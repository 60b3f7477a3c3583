"""Reading only the newest records of a ring gives the same as reading all its records and taking the last ones."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rings import SLOT, events, spans
from test_drain_checked import checked

from brickd.shm import records
from brickd.shm.records import Found

SPAN, DEFER = spans({}).tobytes(), events({}).tobytes()
MAKERS: tuple[Callable[[int], bytes], ...] = (
    lambda number: spans({"sequence": number}).tobytes(),
    lambda number: events({"sequence": number}).tobytes(),
    checked,
    lambda number: checked(number, 8),
)
RINGS = st.lists(st.sampled_from(MAKERS), max_size=80).map(
    lambda makers: b"".join(make(number) for number, make in enumerate(makers))
)


@given(RINGS, st.integers(0, 12), st.sampled_from([records.spans, records.events]))
def test_the_newest_records_are_the_last_ones_decoded(
    slots: bytes, most: int, decode: Callable[[bytes], Found]
) -> None:
    everything, found = (
        [each["sequence"] for each in of] for of, _ in (decode(slots), records.newest(slots, most, decode))
    )
    assert found == (everything[-most:] if most else [])


@pytest.mark.parametrize(
    ("record", "at_most"), [(SPAN, 40), (DEFER, 40), (checked(1, 8), 320)], ids=("span", "start", "checksum")
)
def test_only_as_many_slots_are_decoded_as_are_needed(record: bytes, at_most: int) -> None:
    decoded = []

    def decode(slots: bytes) -> Found:
        decoded.append(len(slots) // SLOT)
        return records.spans(slots) if record is SPAN else records.events(slots)

    found, _ = records.newest(record * 4096, 10, decode)
    assert len(found) == 10
    assert decoded[-1] <= at_most


def test_records_of_other_kinds_do_not_hide_the_shown_ones() -> None:
    slots = SPAN * 3 + DEFER * 4000
    found, others = records.newest(slots, 2, records.spans)
    assert (len(found), others) == (2, {"defer": 4000})


def test_a_ring_is_decoded_up_to_its_first_unreadable_record() -> None:
    slots = DEFER * 100 + bytes(SLOT) + DEFER * 500
    found, others = records.newest(slots, 5, records.events)
    assert (len(found), others) == (5, {"unreadable": 1})
