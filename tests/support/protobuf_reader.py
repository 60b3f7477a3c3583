"""A small decoder of protocol buffers that shares no code with the encoder in brickd."""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

Message = dict[int, list[Any]]


def fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Yield each field: a number, or the bytes of a text or message."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = _varint(data, at)
            yield key >> 3, value
        elif kind == 1:
            yield key >> 3, struct.unpack_from("<d", data, at)[0]
            at += 8
        else:
            assert kind == 2, f"wire type {kind} of field {key >> 3}"
            length, at = _varint(data, at)
            assert at + length <= len(data), "a field ends after its message"
            yield key >> 3, data[at : at + length]
            at += length


def message(data: bytes) -> Message:
    """Return all fields of a message, each as a list."""
    found: Message = defaultdict(list)
    for field, value in fields(data):
        found[field].append(value)
    return found


def packed(data: bytes) -> list[int]:
    """Return the numbers of a packed field."""
    found, at = [], 0
    while at < len(data):
        value, at = _varint(data, at)
        found.append(value)
    return found


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at
