"""Draining checksums: a record that takes several slots is checked by its first slot, and is delivered as a whole."""

from __future__ import annotations

import dataclasses

import dtypes
import numpy as np
import pytest
from forge import U64
from hypothesis import given
from hypothesis import strategies as st
from rings import BATCH, SLOT, Rings, events, events_of, rings

from brickd.shm import _reader, records

CHECKED = _reader.KIND_CHECKED


def checked(sequence: int, inputs: int = 0, **values: int) -> bytes:
    """Return the slots of a checksum. In the slots after the first, all bits are set, as in no other record."""
    head = np.zeros(1, dtypes.dtype("checked"))
    usual = {"sequence": sequence, "slots": 4 + 2 * inputs, "inputs": inputs, "kind": CHECKED}
    for name, value in (usual | values).items():
        head[name] = value
    return head.tobytes() + b"\xff" * SLOT * (int(head["slots"][0]) - 1)


def defers(*sequences: int) -> bytes:
    return events(*({"sequence": n, "id": n} for n in sequences)).tobytes()


@pytest.mark.parametrize("before", [*range(BATCH - 20, BATCH + 1), 8192 - 10])
def test_a_checksum_is_delivered_complete_across_batches_and_the_end_of_the_ring(before: int) -> None:
    with rings(event_slots=8192) as r:
        drain = r.drain()
        r.add(0, "event", defers(*range(1, before + 1)))
        _reader.drain([drain])
        r.publish(drain)
        r.add(0, "event", checked(before + 1, 8) + defers(before + 2) + checked(before + 3))
        assert events_of(_reader.drain([drain])[2]) == defers(before + 2)
        assert drain.checked == 20 + 4
        assert drain.take_checked() == checked(before + 1, 8) + checked(before + 3)
        assert drain.take_checked() == b"", "a checksum is returned once"
        assert (drain.rejected, drain.skipped, drain.gaps) == (0, 0, 0)
        assert drain.cursors() == [(0, before + 25, before + 3, before + 3, 0)]


@pytest.mark.parametrize(
    "values",
    [
        {"inputs": 9, "slots": 4},
        {"inputs": 9, "slots": 22},
        {"site": 64},
        {"relation": 4},
        {"ticks": 2**63},
        {"slots": 5},
    ],
)
def test_an_impossible_checksum_is_counted_and_the_next_is_read(values: dict[str, int]) -> None:
    with rings(event_slots=64, sites=64) as r:
        r.add(0, "event", checked(1, **values) + defers(2))
        drain = r.drain()
        assert events_of(_reader.drain([drain])[2]) == defers(2)
        assert (drain.rejected, drain.skipped) == (1, 0)


def test_checksums_are_delivered_lane_by_lane_and_once() -> None:
    with rings(lanes=2, event_slots=64) as r:
        drain = r.drain()
        r.add(0, "event", checked(1))
        _reader.drain([drain])
        r.add(0, "event", checked(2, 1))
        r.add(1, "event", checked(1, 2) + checked(2))
        _reader.drain([drain])
        assert drain.take_checked() == checked(2, 1) + checked(1, 2) + checked(2)
        _reader.drain([drain])
        assert (drain.checked, drain.take_checked()) == (0, b"")


def test_a_pass_takes_a_bounded_number_and_the_next_continues() -> None:
    with rings(event_slots=1 << 17) as r:
        drain = r.drain()
        r.add(0, "event", b"".join(checked(n, 8) for n in range(1, 4001)))
        counts: list[int] = []
        while not counts or counts[-1]:
            _reader.drain([drain])
            assert len(drain.take_checked()) == drain.checked * SLOT
            counts.append(drain.checked)
        assert sum(counts) == 4000 * 20
        assert counts[0] in range(65536, 65536 + 20)


@given(
    st.lists(st.tuples(st.integers(0, 8), st.sampled_from([0, 0, 0, 5]), st.binary(max_size=64)), max_size=6),
    st.integers(0, 31),
)
def test_checksums_of_any_bits_are_delivered_unchanged(made: list[tuple[int, int, bytes]], offset: int) -> None:
    slots, wanted = b"", []
    for number, (inputs, relation, bits) in enumerate(made, 1):
        one = bytearray(checked(number, inputs, relation=relation))
        one[2 * SLOT : 2 * SLOT + len(bits)] = bits
        slots += one
        wanted.append((number, inputs, inputs + 1))
    found, others = records.events(slots)
    assert [(each["sequence"], each["inputs"], len(each["tensors"])) for each in found] == wanted
    assert not others
    with rings(event_slots=128) as r:
        r.add(0, "event", defers(*range(1, offset + 1)))
        drain = r.drain()
        _reader.drain([drain])
        assert drain.rejected == 0


def test_a_checksum_with_a_wrong_slot_count_is_unreadable_and_the_next_read() -> None:
    found, others = records.events(checked(1, slots=6) + defers(2) + checked(3, 2)[:-SLOT])
    assert [each["sequence"] for each in found] == [2]
    assert others == {"unreadable": 2}


# ---- salvage -----------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Dead:
    """A ring of 32 slots whose worker died before its head moved."""

    below: bytes
    there: bytes
    attempts: int


def left(r: Rings, dead: Dead, ring_offset: int) -> _reader.Drain:
    drain = r.drain()
    r.add(0, "event", defers(*range(1, ring_offset + 1)))
    _reader.drain([drain])
    r.publish(drain)
    if dead.below:
        r.add(0, "event", dead.below)
    r.write(0, "event", dead.there)
    r.put("lane", 0, event_attempts=dead.attempts)
    return drain


@pytest.mark.parametrize("offset", [0, 5, 27, 31])
@pytest.mark.parametrize("inputs", [0, 3])
def test_a_complete_checksum_is_salvaged_across_the_end_of_the_ring(offset: int, inputs: int) -> None:
    with rings(event_slots=32) as r:
        drain = left(r, Dead(b"", checked(offset + 1, inputs), offset + 1), offset)
        for _ in range(2):
            drain.salvage()
            assert _reader.drain([drain])[2] == []
        assert drain.cursors() == [(0, offset + 4 + 2 * inputs, offset + 1, offset + 1, 0)]
        assert drain.rejected == 0
        r.publish(drain)
        assert r.line(0)["event"][0] == offset, "the tail does not pass the head"


@pytest.mark.parametrize(
    "there",
    [
        pytest.param(checked(4), id="not the newest"),
        pytest.param(checked(5, 9, slots=22), id="too many slots"),
        pytest.param(checked(5, kind=_reader.KIND_DEFER), id="another kind, of several slots"),
        pytest.param(checked(5, kind=99), id="an unknown kind, of several slots"),
        pytest.param(bytes(SLOT), id="a hole"),
    ],
)
def test_a_possibly_incomplete_checksum_is_not_salvaged(there: bytes) -> None:
    with rings(event_slots=32) as r:
        drain = left(r, Dead(checked(4), there, 5), 3)
        drain.salvage()
        assert _reader.drain([drain])[2] == []
        assert drain.cursors()[0][1:3] == (7, 4)


def test_an_impossible_checksum_is_salvaged_as_rejected() -> None:
    with rings(event_slots=32, sites=64) as r:
        drain = left(r, Dead(b"", checked(4, site=64), 4), 3)
        drain.salvage()
        assert _reader.drain([drain])[2] == []
        assert (drain.cursors()[0][1:3], drain.rejected) == ((7, 4), 1)


@pytest.mark.parametrize("sketch", [b"\0" * 8, (7).to_bytes(8, "little"), U64.to_bytes(8, "little")])
def test_a_successor_does_not_take_a_tensor_for_a_record(sketch: bytes) -> None:
    below = checked(7)[: 3 * SLOT] + sketch + bytes(SLOT - 8)
    with rings(event_slots=32) as r:
        r.add(0, "event", below)
        r.write(0, "event", checked(8))
        r.put("lane", 0, event_attempts=8)
        drain = r.drain([(0, 4, 0, 0, 0)])
        drain.salvage()
        assert _reader.drain([drain])[2] == []
        assert drain.cursors()[0][1] == 8


def test_a_ring_too_small_for_a_checksum_salvages_none() -> None:
    with rings(event_slots=4) as r:
        r.write(0, "event", checked(1, 1)[: 4 * SLOT])
        r.put("lane", 0, opened=1, event_attempts=1)
        drain = r.drain()
        drain.salvage()
        assert _reader.drain([drain])[2] == []
        assert drain.cursors()[0][1:3] == (0, 0)


@pytest.mark.parametrize(
    ("event_slots", "inputs"),
    [pytest.param(4, 0, id="size of the ring"), pytest.param(32, 8, id="maximum size")],
)
def test_a_checksum_of_the_maximum_size_is_salvaged(event_slots: int, inputs: int) -> None:
    with rings(event_slots=event_slots) as r:
        r.write(0, "event", checked(1, inputs))
        r.put("lane", 0, opened=1, event_attempts=1)
        drain = r.drain()
        drain.salvage()
        assert _reader.drain([drain])[2] == []
        assert drain.cursors()[0][1:3] == (4 + 2 * inputs, 1)
