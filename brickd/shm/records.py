"""Records from the slots of a ring.

Owns: how slots become records, and the names of their kinds. Must not know: the origin of the slots. Invariants: a
record of an unknown kind is counted and skipped, by the number of slots in it; an impossible number ends the walk, and
the rest counts as one unreadable record.
"""

from __future__ import annotations

import functools
import itertools
import math
import struct
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from brickd.shm import _reader

SLOT_BYTES = 64
_NAMES = {0: "other"} | {number: name for number, name, _, _ in _reader.KINDS}
SPANS = {number: struct for number, _, struct, is_event in _reader.KINDS if not is_event}
_EVENTS = {number: struct for number, _, struct, is_event in _reader.KINDS if is_event}
RELATIONS = ("local", "replicated", "partial", "moved")
DTYPES = (
    None, "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "bfloat16",
    "float32", "float64", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz",
)  # fmt: skip
ALL = 2**64 - 1  # the valid rows of a tensor if every row counts
_RECORD_SLOTS = 4  # of a record, on average
_VALUES = ("min", "max", "mean", "l2")  # of a tensor; a recording may omit them


def kind_name(kind: int) -> str:
    """Return the name of a record kind; 0 means all kinds without a separate counter.

    >>> kind_name(_reader.KIND_DEFER), kind_name(15)
    ('defer', 'kind_15')
    """
    return _NAMES.get(kind, f"kind_{kind}")


@functools.cache
def fields_of(record: str) -> tuple[tuple[str, int, int, str], ...]:
    """Return the (name, offset, count, code) of a struct's fields, even of later minor versions."""
    frozen = tuple(row[1:] for row in _reader.layout() if row[0] == record)
    return frozen or tuple(row[1:] for row in _reader.later() if row[0] == record)


@functools.cache
def named_later(record: str) -> dict[str, int]:
    """Return the fields that later minor versions added in reserved bytes, which are 0 before."""
    return {name: 0 for each, name, *_ in _reader.later() if each == record}


@functools.cache
def _codec(record: str) -> tuple[struct.Struct, tuple[tuple[str, int], ...]]:
    """Return the codec of a struct, and the name and count of each field except reserved ones."""
    codes, names = "<", []
    for name, _, count, code in fields_of(record):
        if name.startswith("reserved"):
            codes += f"{count * struct.calcsize(code)}x"
        else:
            codes += f"{count}{code}"
            names.append((name, count))
    return struct.Struct(codes), tuple(names)


Found = tuple[list[dict[str, Any]], Counter[str]]


def spans(slots: bytes) -> Found:
    """The spans among the records, in order, and the number of other records by kind."""
    return _found(slots, SPANS)


def events(slots: bytes) -> Found:
    """The events among the records, each with its kind's fields, and the number of other records.

    A checksum has `output`, the fields of its second slot, and `tensors`: the fields of the two slots of each tensor,
    the output first. Values that the recording omitted are None, `fnv1a` included.
    """
    return _found(slots, _EVENTS)


def newest(slots: bytes, most: int, decode: Callable[[bytes], Found]) -> Found:
    """The newest `most` records that `spans` or `events` finds, and the number of other records between them.

    Decoding takes microseconds a record, and a ring may hold a million, so only the last slots are decoded: more of
    them until enough records are found.
    """
    needed, room = max(1, most) * _RECORD_SLOTS, len(slots) // SLOT_BYTES
    while True:
        at = _reader.walk(slots, 0, room - needed) if needed < room else 0
        found, others = decode(slots[(at or 0) * SLOT_BYTES :])
        if len(found) >= most or not at:
            return found[max(0, len(found) - most) :], others
        needed *= 8


def checked_head(slots: bytes) -> dict[str, Any]:
    """The fields of the first slot of a checksum."""
    return _fields("checked", slots, 0)


def tensor_document(tensor: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON document of one tensor of a checksum."""
    dtype = tensor["dtype"]
    return {
        "checksum": f"{tensor['checksum']:016x}",
        "dtype": DTYPES[dtype] if dtype < len(DTYPES) else f"dtype_{dtype}",
        "elements": tensor["elements"],
        **{name: _finite(tensor[name]) for name in _VALUES},
        **{name: tensor[name] for name in ("nan", "pos_inf", "neg_inf")},
    }


def seeds_checksum(output: Mapping[str, Any]) -> str | None:
    """The FNV-1a checksum of an output, in hex."""
    return None if output["fnv1a"] is None else f"{output['fnv1a']:016x}"


def _finite(value: float | None) -> float | None:
    """Return the value, or None if JSON cannot represent it."""
    return value if value is not None and math.isfinite(value) else None


def _fields(record: str, slots: bytes, at: int) -> dict[str, Any]:
    fields, names = _codec(record)
    values = iter(fields.unpack_from(slots, at))
    return {name: next(values) if count == 1 else tuple(itertools.islice(values, count)) for name, count in names}


def _add_tensors(checked: dict[str, Any], slots: bytes, at: int) -> bool:
    """Add a checksum's tensors; return False if its number of slots is wrong."""
    places = range(at + 2 * SLOT_BYTES, at + checked["slots"] * SLOT_BYTES, 2 * SLOT_BYTES)
    if checked["slots"] != 4 + 2 * checked["inputs"]:
        return False
    checked["output"] = _fields("output", slots, at + SLOT_BYTES)
    checked["tensors"] = [
        _fields("tensor_sums", slots, place) | _fields("tensor_sketch", slots, place + SLOT_BYTES) for place in places
    ]
    if checked["output"]["fnv1a"] == 0:  # no tensor has the checksum 0: the recording omitted the values
        checked["output"]["fnv1a"] = None
        for tensor in checked["tensors"]:
            tensor.update(dict.fromkeys(_VALUES))
    return True


def _found(slots: bytes, structs: dict[int, str]) -> Found:
    head, _ = _codec("record")
    found: list[dict[str, Any]] = []
    others: Counter[str] = Counter()
    at = 0
    while at + SLOT_BYTES <= len(slots):
        _, _, count, kind, *_ = head.unpack_from(slots, at)
        if count == 0 or at + count * SLOT_BYTES > len(slots):
            others["unreadable"] += 1
            break
        if kind in structs and (count == 1 or kind == _reader.KIND_CHECKED):
            one = _fields(structs[kind], slots, at)
            if kind != _reader.KIND_CHECKED or _add_tensors(one, slots, at):
                found.append(one)
            else:
                others["unreadable"] += 1
        else:
            others[kind_name(kind)] += 1
        at += count * SLOT_BYTES
    return found, others
