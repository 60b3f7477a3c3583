"""Records, decoded from the slots of a ring.

Owns: how slots become records, and the names of their kinds. Must not know: the origin of the slots. Invariants: A
record of an unknown kind is counted, and the number of slots that it declares is skipped. If a record declares an
impossible number of slots, the decoding ends there. The remaining slots are counted as one unreadable record.
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
ALL = 2**64 - 1  # the number of valid rows of a tensor in which every row is valid
_RECORD_SLOTS = 4  # the slots of a record, on average
_VALUES = ("min", "max", "mean", "l2")  # values of a tensor; a recording may be made without them


def kind_name(kind: int) -> str:
    """Return the name of a record kind. Kind 0 stands for all kinds that have no counter of their own.

    >>> kind_name(_reader.KIND_DEFER), kind_name(15)
    ('defer', 'kind_15')
    """
    return _NAMES.get(kind, f"kind_{kind}")


@functools.cache
def fields_of(record: str) -> tuple[tuple[str, int, int, str], ...]:
    """Return the (name, offset, count, code) of a struct's fields, including those of later minor versions."""
    frozen = tuple(row[1:] for row in _reader.layout() if row[0] == record)
    return frozen or tuple(row[1:] for row in _reader.later() if row[0] == record)


@functools.cache
def named_later(record: str) -> dict[str, int]:
    """Return the fields that later minor versions added in reserved bytes. Earlier versions have 0 there."""
    return {name: 0 for each, name, *_ in _reader.later() if each == record}


@functools.cache
def _codec(record: str) -> tuple[struct.Struct, tuple[tuple[str, int], ...]]:
    """Return the codec of a struct, and the name and count of each field that is not reserved."""
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
    """Return the spans among the records, in order, and how many other records of each kind there are."""
    return _found(slots, SPANS)


def events(slots: bytes) -> Found:
    """Return the events among the records, each with the fields of its kind, and how many other records there are.

    A checksum also has `output` and `tensors`. `output` contains the fields of its second slot. `tensors` contains the
    fields of the two slots of each tensor; the output is the first tensor. If the recording was made without values,
    the values and `fnv1a` are None.
    """
    return _found(slots, _EVENTS)


def newest(slots: bytes, most: int, decode: Callable[[bytes], Found]) -> Found:
    """Return the newest `most` records that `decode` finds, and the counts of other decoded records.

    Decoding takes microseconds per record, and a ring may hold a million records. So only the last slots are decoded;
    if they have too few records, more slots are decoded.
    """
    needed, room = max(1, most) * _RECORD_SLOTS, len(slots) // SLOT_BYTES
    while True:
        at = _reader.walk(slots, 0, room - needed) if needed < room else 0
        found, others = decode(slots[(at or 0) * SLOT_BYTES :])
        if len(found) >= most or not at:
            return found[max(0, len(found) - most) :], others
        needed *= 8


def checked_head(slots: bytes) -> dict[str, Any]:
    """Return the fields of the first slot of a checksum."""
    return _fields("checked", slots, 0)


def tensor_document(tensor: Mapping[str, Any]) -> dict[str, Any]:
    """Return one tensor of a checksum as JSON."""
    dtype = tensor["dtype"]
    return {
        "checksum": f"{tensor['checksum']:016x}",
        "dtype": DTYPES[dtype] if dtype < len(DTYPES) else f"dtype_{dtype}",
        "elements": tensor["elements"],
        **{name: _finite(tensor[name]) for name in _VALUES},
        **{name: tensor[name] for name in ("nan", "pos_inf", "neg_inf")},
    }


def seeds_checksum(output: Mapping[str, Any]) -> str | None:
    """Return the FNV-1a checksum of an output in hexadecimal digits."""
    return None if output["fnv1a"] is None else f"{output['fnv1a']:016x}"


def _finite(value: float | None) -> float | None:
    """Return the value, or None if JSON cannot represent it."""
    return value if value is not None and math.isfinite(value) else None


def _fields(record: str, slots: bytes, at: int) -> dict[str, Any]:
    fields, names = _codec(record)
    values = iter(fields.unpack_from(slots, at))
    return {name: next(values) if count == 1 else tuple(itertools.islice(values, count)) for name, count in names}


def _add_tensors(checked: dict[str, Any], slots: bytes, at: int) -> bool:
    """Add the tensors of a checksum; return False if the number of its slots is wrong."""
    places = range(at + 2 * SLOT_BYTES, at + checked["slots"] * SLOT_BYTES, 2 * SLOT_BYTES)
    if checked["slots"] != 4 + 2 * checked["inputs"]:
        return False
    checked["output"] = _fields("output", slots, at + SLOT_BYTES)
    checked["tensors"] = [
        _fields("tensor_sums", slots, place) | _fields("tensor_sketch", slots, place + SLOT_BYTES) for place in places
    ]
    if checked["output"]["fnv1a"] == 0:  # no tensor has the checksum 0, so this recording has no values
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
