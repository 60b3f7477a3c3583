"""Records out of the slots of a ring.

Owns: how slots become records, and the names of their kinds. Must not know: where the slots came from. Invariants: a
record of an unknown kind is skipped by its own count of slots and counted; an impossible count ends the walk, with the
rest counted as unreadable.
"""

from __future__ import annotations

import functools
import itertools
import math
import struct
from collections import Counter
from collections.abc import Mapping
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
ALL = 2**64 - 1  # valid rows of a tensor all of whose rows count
_VALUES = ("min", "max", "mean", "l2")  # of a tensor, and what its recording may leave out


def kind_name(kind: int) -> str:
    """The name of a kind of records; 0 stands for kinds without a counter of their own.

    >>> kind_name(_reader.KIND_DEFER), kind_name(15)
    ('defer', 'kind_15')
    """
    return _NAMES.get(kind, f"kind_{kind}")


@functools.cache
def fields_of(record: str) -> tuple[tuple[str, int, int, str], ...]:
    """The (name, offset, count, code) of a struct's fields, of whatever minor the struct is."""
    frozen = tuple(row[1:] for row in _reader.layout() if row[0] == record)
    return frozen or tuple(row[1:] for row in _reader.later() if row[0] == record)


@functools.cache
def named_later(record: str) -> dict[str, int]:
    """The fields that later minors named in reserved bytes, as an older minor has them: zeros."""
    return {name: 0 for each, name, *_ in _reader.later() if each == record}


@functools.cache
def _codec(record: str) -> tuple[struct.Struct, tuple[tuple[str, int], ...]]:
    """The codec of a struct's bytes, with name and count of each field but reserved ones."""
    codes, names = "<", []
    for name, _, count, code in fields_of(record):
        if name.startswith("reserved"):
            codes += f"{count * struct.calcsize(code)}x"
        else:
            codes += f"{count}{code}"
            names.append((name, count))
    return struct.Struct(codes), tuple(names)


def spans(slots: bytes) -> tuple[list[dict[str, Any]], Counter[str]]:
    """The spans among the records, in order, and the number of other records, by reason."""
    return _found(slots, SPANS)


def events(slots: bytes) -> tuple[list[dict[str, Any]], Counter[str]]:
    """The same of the events: each with the fields of its own kind.

    A checksum has its `output`, the second slot, and `tensors`: the fields of the two slots of each, the output first.
    Values that its recording left out are None, the seed's checksum included.
    """
    return _found(slots, _EVENTS)


def checked_head(slots: bytes) -> dict[str, Any]:
    """The fields of the first slot of a checksum."""
    return _fields("checked", slots, 0)


def tensor_document(tensor: Mapping[str, Any]) -> dict[str, Any]:
    """One of a checksum's tensors, as a JSON document."""
    dtype = tensor["dtype"]
    return {
        "checksum": f"{tensor['checksum']:016x}",
        "dtype": DTYPES[dtype] if dtype < len(DTYPES) else f"dtype_{dtype}",
        "elements": tensor["elements"],
        **{name: _finite(tensor[name]) for name in _VALUES},
        **{name: tensor[name] for name in ("nan", "pos_inf", "neg_inf")},
    }


def seeds_checksum(output: Mapping[str, Any]) -> str | None:
    """FNV-1a of an output, as JSON has it."""
    return None if output["fnv1a"] is None else f"{output['fnv1a']:016x}"


def _finite(value: float | None) -> float | None:
    """JSON has no other numbers."""
    return value if value is not None and math.isfinite(value) else None


def _fields(record: str, slots: bytes, at: int) -> dict[str, Any]:
    fields, names = _codec(record)
    values = iter(fields.unpack_from(slots, at))
    return {name: next(values) if count == 1 else tuple(itertools.islice(values, count)) for name, count in names}


def _add_tensors(checked: dict[str, Any], slots: bytes, at: int) -> bool:
    """False: its tensors take other slots than it has."""
    places = range(at + 2 * SLOT_BYTES, at + checked["slots"] * SLOT_BYTES, 2 * SLOT_BYTES)
    if checked["slots"] != 4 + 2 * checked["inputs"]:
        return False
    checked["output"] = _fields("output", slots, at + SLOT_BYTES)
    checked["tensors"] = [
        _fields("tensor_sums", slots, place) | _fields("tensor_sketch", slots, place + SLOT_BYTES) for place in places
    ]
    if checked["output"]["fnv1a"] == 0:  # as no tensor has it
        checked["output"]["fnv1a"] = None
        for tensor in checked["tensors"]:
            tensor.update(dict.fromkeys(_VALUES))
    return True


def _found(slots: bytes, structs: dict[int, str]) -> tuple[list[dict[str, Any]], Counter[str]]:
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
