"""The places of a worker's spans: brick, category, layer and the bricks around it.

Owns: what each path id means. Must not know: rows, formats. Invariants: the list of places has one entry more than
there are known paths; this last entry is for spans whose path is in no snapshot. All texts are valid Unicode without
lone surrogates.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple, Protocol

from brickd.shm import _reader
from brickd.shm.segment_copy import Reading

UNKNOWN_BRICK = "[unknown]"
GIVEN, LEFT_OUT = 1, 2  # BRICK_PATH_GIVEN, BRICK_PATH_LEFT_OUT


class Place(NamedTuple):
    """A place.

    `stack` has the names of the bricks from the root down to this one; `device`: whether its work is deferred.
    """

    brick: str | None
    category: str | None
    layer: int | None
    stack: tuple[str, ...]
    device: bool = False


class NamedWorker(Protocol):
    """A live worker, or a worker of a recording."""

    @property
    def service(self) -> str:
        """Its service."""

    @property
    def name(self) -> str:
        """Its name."""


class PlaceTotal(NamedTuple):
    """The spans of one worker at one place."""

    worker: NamedWorker
    place: Place
    spans: int
    self_ns: int
    total_ns: int


UNKNOWN = Place(None, None, None, ())


def valid(text: str) -> str:
    r"""Return a text that UTF-8 can encode.

    >>> valid("moe\udc80\x1b")
    'moe\ufffd\x1b'
    """
    return text if text.isascii() else text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def places_of(reading: Reading) -> list[Place]:
    """Return the place of each path of a worker, and `UNKNOWN` at the end."""
    found: list[Place] = []
    for path in reading.paths:
        if path is None:
            found.append(UNKNOWN)
            continue
        above = found[path.parent].stack if path.parent >= 0 else ()
        brick = valid(reading.name(path.name))
        layer = path.layer if path.layer >= 0 else None
        device = path.unit == _reader.UNIT_DEFERRED
        found.append(Place(brick, valid(reading.category(path.name)), layer, (*above, brick), device))
    return [*found, UNKNOWN]


def flags_of(reading: Reading, places: Sequence[Place], bricks: Collection[str]) -> bytes:
    """Return the flags of each place, as `_reader.span_rows` takes them.

    `bricks` has the wanted bricks; if it is empty, all bricks are wanted.
    """
    given = [path is not None and path.unit == _reader.UNIT_NS for path in reading.paths]
    return bytes(
        GIVEN * is_given | LEFT_OUT * bool(bricks and place.brick not in bricks)
        for is_given, place in zip([*given, False], places, strict=True)
    )
