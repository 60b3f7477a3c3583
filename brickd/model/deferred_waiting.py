"""The waiting records of deferred work, and the encoding in which they survive a restart of the daemon.

Owns: the list of starts without an end, the records of a pass over the lanes, and how both are written to a document.
Must not know: streams, how a start ends. Invariants: Decoding reverses encoding. An invalid text raises ValueError.
Each start is encoded only once, because a checkpoint is written every second and many starts may never end.
"""

from __future__ import annotations

import struct
from binascii import a2b_base64, b2a_base64
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import compress, groupby
from operator import attrgetter, not_
from typing import Any, Self

from brickd.base.json_values import flag, optional, whole
from brickd.shm import _reader

_ROW = struct.Struct("<QQIQQ")  # start, id, path, elements, bytes
_ROW_CHARACTERS = _ROW.size // 3 * 4  # the size is a multiple of 3, so texts of rows can be cut and joined


@dataclass(slots=True)
class Start:
    """Work handed to a stream. It ends the previous start's part of the time, even if its own time is measured.

    `stream` and `step` are not encoded, because only a reader of a recording uses them.
    """

    start: int
    id: int
    path: int
    elements: int
    bytes: int
    measured: bool = False
    stream: int = field(default=0, compare=False)
    step: int = field(default=0, compare=False)


class WaitingStarts:
    """The waiting starts of one stream, in order of arrival."""

    def __init__(self, starts: Iterable[Start] = ()) -> None:
        self._starts = list(starts)
        self._text = ""  # the encoding of the first starts

    def __iter__(self) -> Iterator[Start]:
        return iter(self._starts)

    def __len__(self) -> int:
        return len(self._starts)

    def add(self, *starts: Start) -> None:
        """Append starts."""
        self._starts += starts

    def take(self, which: Callable[[Start], bool]) -> list[Start]:
        """Remove some starts, and return them."""
        goes = list(map(which, self._starts))
        stays = list(map(not_, goes))
        taken, self._starts = list(compress(self._starts, goes)), list(compress(self._starts, stays))
        self._text = "".join(self._text[begin * _ROW_CHARACTERS : end * _ROW_CHARACTERS] for begin, end in _runs(stays))
        return taken

    def text(self) -> str:
        """Return the encoding of all starts, without their marks."""
        fresh = self._starts[len(self._text) // _ROW_CHARACTERS :]
        packed = b"".join([_ROW.pack(each.start, each.id, each.path, each.elements, each.bytes) for each in fresh])
        self._text += _text(packed)
        return self._text

    def marks(self) -> str:
        """Return the encoding of the marks. They show which starts have a measured time."""
        return _text(bytes(map(attrgetter("measured"), self._starts)))

    @classmethod
    def of(cls, text: str, marks: str) -> Self:
        """Decode the output of `text` and `marks`. Empty marks mean that no start is measured."""
        packed = a2b_base64(text, strict_mode=True)
        if len(packed) % _ROW.size:
            raise ValueError(f"{len(packed)} bytes of starts, expected a multiple of {_ROW.size}")
        self = cls(Start(*row) for row in _ROW.iter_unpack(packed))
        for each in self:
            whole(each.path, most=_reader.NUMBERS_MAX - 1)
        self._text = text
        if marks:
            for start, mark in zip(self._starts, a2b_base64(marks, strict_mode=True), strict=True):
                start.measured = bool(mark)
        return self


@dataclass(slots=True)
class Finalize:
    """The host has waited for a stream, or for all streams (None).

    `again`: whether this repeats an earlier finalize, because a start arrived after that finalize was settled.
    """

    ticks: int
    stream: int | None
    again: bool = False


@dataclass(slots=True)
class Batch:
    """Records that wait for another pass over the lanes: finalizes, and measurements without a start."""

    finalizes: list[Finalize] = field(default_factory=list)
    measurements: dict[int, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.finalizes) + len(self.measurements)

    def document(self) -> list[Any]:
        """Return the batch as JSON."""
        return [[[each.ticks, each.stream, each.again] for each in self.finalizes], list(self.measurements.items())]

    @classmethod
    def of(cls, finalizes: Any, measurements: Any) -> Self:
        """Decode the output of `document`."""
        return cls(
            [Finalize(whole(ticks), optional(stream, whole), flag(again)) for ticks, stream, again in finalizes],
            {whole(id): whole(ns) for id, ns in measurements},
        )


def _runs(flags: Iterable[bool]) -> Iterator[tuple[int, int]]:
    """Return (begin, end) for each run of consecutive flags that are set."""
    end = 0
    for is_set, run in groupby(flags):
        begin, end = end, end + len(list(run))
        if is_set:
            yield begin, end


def _text(packed: bytes) -> str:
    return b2a_base64(packed, newline=False).decode("ascii")
