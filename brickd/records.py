"""Records out of the slots of a ring.

Owns: how slots become records, and what is said of kinds that this brickd does not know. Must not know: where the slots
came from. Invariants: a record of an unknown kind is skipped by its own count of slots and counted; a count that cannot
be ends the walk, with the rest counted as unreadable.
"""

from __future__ import annotations

import functools
import struct
from collections import Counter
from typing import Any

from brickd import _reader

SLOT_BYTES = 64
SPANS = (_reader.KIND_SPAN, _reader.KIND_STEP)  # the kinds of records that are spans


def fields_of(record: str) -> list[tuple[str, int, int, str]]:
    """The (name, offset, count, code) of a struct's fields, of whatever minor the struct is."""
    frozen = [row[1:] for row in _reader.layout() if row[0] == record]
    return frozen or [row[1:] for row in _reader.later() if row[0] == record]


@functools.cache
def _codec(record: str) -> tuple[struct.Struct, tuple[str, ...]]:
    fields = [(name, count, code) for name, _, count, code in fields_of(record)]
    return struct.Struct("<" + "".join(f"{count}{code}" for _, count, code in fields)), tuple(f[0] for f in fields)


def spans(slots: bytes) -> tuple[list[dict[str, Any]], Counter[str]]:
    """The spans among the records, in order, and how many records there were that are none, by reason."""
    head, _ = _codec("record")
    span, names = _codec("span")
    found: list[dict[str, Any]] = []
    others: Counter[str] = Counter()
    at = 0
    while at + SLOT_BYTES <= len(slots):
        _, _, count, kind, *_ = head.unpack_from(slots, at)
        if count == 0 or at + count * SLOT_BYTES > len(slots):
            others["unreadable"] += 1
            break
        if kind in SPANS and count == 1:
            found.append(dict(zip(names, span.unpack_from(slots, at), strict=True)))
        else:
            others[f"kind_{kind}"] += 1
        at += count * SLOT_BYTES
    return found, others
