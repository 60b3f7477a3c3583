"""Records out of the slots of a ring.

Owns: how slots become records, what each kind of them is called, and what is said of kinds that this brickd does not
know. Must not know: where the slots came from. Invariants: a record of an unknown kind is skipped by its own count of
slots and counted; a count that cannot be ends the walk, with the rest counted as unreadable.
"""

from __future__ import annotations

import functools
import struct
from collections import Counter
from typing import Any

from brickd import _reader

SLOT_BYTES = 64
SPANS = (_reader.KIND_SPAN, _reader.KIND_STEP)  # the kinds of records that are spans
EVENTS = (_reader.KIND_DEFER, _reader.KIND_FINALIZE, _reader.KIND_MEASURED)
_NAMES = dict(zip((0, *SPANS, *EVENTS), ("other", "span", "step", "defer", "finalize", "measured"), strict=True))


def kind_name(kind: int) -> str:
    """What a kind of records is called; 0 stands for those that no counter of their own is kept for.

    >>> kind_name(_reader.KIND_DEFER), kind_name(15)
    ('defer', 'kind_15')
    """
    return _NAMES.get(kind, f"kind_{kind}")


def fields_of(record: str) -> list[tuple[str, int, int, str]]:
    """The (name, offset, count, code) of a struct's fields, of whatever minor the struct is."""
    frozen = [row[1:] for row in _reader.layout() if row[0] == record]
    return frozen or [row[1:] for row in _reader.later() if row[0] == record]


@functools.cache
def _codec(record: str) -> tuple[struct.Struct, tuple[str, ...]]:
    """How a struct's bytes become values, and what these are called; what is reserved is none of them."""
    codes, names = "<", []
    for name, _, count, code in fields_of(record):
        if name.startswith("reserved"):
            codes += f"{count * struct.calcsize(code)}x"
        else:
            codes += f"{count}{code}"
            names.append(name)
    return struct.Struct(codes), tuple(names)


def spans(slots: bytes) -> tuple[list[dict[str, Any]], Counter[str]]:
    """The spans among the records, in order, and how many records there were that are none, by reason."""
    return _found(slots, dict.fromkeys(SPANS, "span"))


def events(slots: bytes) -> tuple[list[dict[str, Any]], Counter[str]]:
    """The same of the events: each with the fields of its own kind."""
    return _found(slots, {kind: kind_name(kind) for kind in EVENTS})


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
        if kind in structs and count == 1:
            fields, names = _codec(structs[kind])
            found.append(dict(zip(names, fields.unpack_from(slots, at), strict=True)))
        else:
            others[kind_name(kind)] += 1
        at += count * SLOT_BYTES
    return found, others
