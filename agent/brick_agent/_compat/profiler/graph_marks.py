"""Marks: facts other than times, such as the shape of a launch or the number of moved bytes.

Owns: the facts about a launched kernel, a transfer, a function, a task; how the texts that describe shapes and the two
ends of a transfer are parsed. Must not know: paths, trees, screens. This file is part of the agent; brickd has a
symbolic link to it. Invariants: A text is read as a shape only if the writer would write this shape as exactly this
text (brick_shm.h). Any other text is kept unchanged. The counts of all shapes, including the unknown shape, add up to
the number of launches.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NamedTuple

# At most this many items of an unbounded list are shown, the most frequent first; the others are counted.
SHOWN_MAX = 64
_ARROW = "→"
_NUMBER = r"([1-9][0-9]{0,9})"
_SHAPE = re.compile(
    rf"(?:<<<{_NUMBER}(?:x{_NUMBER})?(?:x{_NUMBER})?,{_NUMBER},{_NUMBER}(?:,{_NUMBER})?>>> )?"
    r"smem=(0|[1-9][0-9]{0,9})B(?: @([0-9a-f]{16}))?"
)
_MOST = 2**32 - 1

Extent = tuple[int, int, int]


class Shape(NamedTuple):
    """How a kernel is launched.

    Attributes:
        grid: the grid of blocks; None: the grid and the block are unknown.
        block: the block of threads.
        source: the hash of the kernel's source, in hex; None: unknown.
    """

    grid: Extent | None
    block: Extent | None
    shared_bytes: int
    source: str | None

    def __str__(self) -> str:
        """The text of the shape as the writer formats it."""
        launched = ""
        if self.grid is not None and self.block is not None:
            grid = "x".join(map(str, _without_ones(self.grid, 1)))
            launched = f"<<<{grid},{','.join(map(str, _without_ones(self.block, 2)))}>>> "
        return f"{launched}smem={self.shared_bytes}B" + (f" @{self.source}" if self.source else "")


def _without_ones(extent: Extent, least: int) -> Extent | tuple[int, ...]:
    """Drop the trailing 1s of an extent, but keep at least `least` numbers."""
    kept = extent[:least]
    for number in range(least, 3):
        if any(each != 1 for each in extent[number:]):
            kept = extent[: number + 1]
    return kept


def shape(text: str) -> Shape | None:
    """Parse a shape; None if the text is not a shape.

    >>> shape("<<<16x4,32,8,2>>> smem=0B @cbf29ce484222325")
    Shape(grid=(16, 4, 1), block=(32, 8, 2), shared_bytes=0, source='cbf29ce484222325')
    >>> shape("<<<16x1,32,8>>> smem=0B"), shape("<<<0,1,1>>> smem=0B")
    (None, None)
    """
    found = _SHAPE.fullmatch(text)
    if found is None:
        return None
    *extents, shared, source = found.groups()
    numbers = [1 if each is None else int(each) for each in extents]
    known = extents[0] is not None
    result = Shape(
        (numbers[0], numbers[1], numbers[2]) if known else None,
        (numbers[3], numbers[4], numbers[5]) if known else None,
        int(shared),
        source,
    )
    return result if max(*numbers, result.shared_bytes) <= _MOST and str(result) == text else None


def ends(text: str) -> tuple[str, str] | None:
    """Return the two ends that the name of a transfer contains; None if the name is ambiguous.

    >>> ends("tokens→gpu0"), ends("a→b→c"), ends("→gpu0")
    (('tokens', 'gpu0'), None, None)
    """
    parts = text.split(_ARROW)
    return (parts[0], parts[1]) if len(parts) == 2 and all(parts) else None


@dataclass(slots=True)
class KernelMark:
    """The number of launches of a kernel at one path, and how many of them have each known shape."""

    launches: int = 0
    shapes: Counter[str] = field(default_factory=Counter)

    def source(self) -> str | None:
        """The hash of the source with the most launches; None: unknown."""
        sources = Counter[str]()
        for text, launches in self.shapes.items():
            if (known := shape(text)) is not None and known.source is not None:
                sources[known.source] += launches
        return next((hash_ for hash_, _ in ranked(sources)), None)

    def document(self, timed: int) -> dict[str, Any]:
        """The JSON document. `timed` is the number of launches whose times are known."""
        found = ranked(self.shapes)
        shown = found[:SHOWN_MAX]
        return {
            "launches": self.launches,
            "timed": timed,
            "shapes": [_shape(text, launches) for text, launches in shown],
            "hidden_shapes": len(found) - len(shown),
            "hidden_launches": sum(launches for _, launches in found[SHOWN_MAX:]),
            "launches_without_shape": max(0, self.launches - self.shapes.total()),
        }


def ranked(counts: Counter[str]) -> list[tuple[str, int]]:
    """Return texts with a count above 0: the most frequent text first, equal counts in alphabetical order."""
    return sorted(((text, n) for text, n in counts.items() if n), key=lambda each: (-each[1], each[0]))


def _shape(text: str, launches: int) -> dict[str, Any]:
    known = shape(text)
    return {
        "text": text,
        "launches": launches,
        "grid": None if known is None or known.grid is None else list(known.grid),
        "block": None if known is None or known.block is None else list(known.block),
        "shared_bytes": None if known is None else known.shared_bytes,
        "source_hash": None if known is None else known.source,
    }


@dataclass(slots=True)
class TransferMark:
    """Bytes that are moved between two ends at one path.

    Attributes:
        direction: H2D, D2H or D2D.
        couple: both ends, as the writer formats them.
        returned: the number of transfers that moved the same data back immediately.
    """

    direction: str
    couple: str
    transfers: int = 0
    size_bytes: int = 0
    returned: int = 0
    returned_bytes: int = 0

    def document(self, timed: int) -> dict[str, Any]:
        """The JSON document. `timed` is the number of transfers whose times are known."""
        found = ends(self.couple)
        return {
            "direction": self.direction,
            "from": None if found is None else found[0],
            "to": None if found is None else found[1],
            "transfers": self.transfers,
            "timed": timed,
            "moved_bytes": self.size_bytes,
            "returned": self.returned,
            "returned_bytes": self.returned_bytes,
        }


class Definition(NamedTuple):
    """The file and line of a function's definition; None: unknown."""

    file: str | None
    line: int | None

    def document(self) -> dict[str, Any]:
        """The JSON document."""
        return {"file": self.file, "line": self.line}


@dataclass(slots=True)
class Task:
    """A brick whose spans are polls of tasks.

    `ended` is the number of tasks that ended: each is counted at its last poll.

    Attributes:
        traced: whether the brick's spans are polls of tasks.
        polls, yields: the numbers of polls and of yields that a host reports for tasks that were not recorded.
    """

    traced: bool = False
    ended: int = 0
    polls: int = 0
    yields: int = 0

    def document(self, stretches: int) -> dict[str, Any]:
        """The JSON document. `stretches` is the number of recorded polls."""
        stretches = stretches if self.traced else 0
        yields = max(0, stretches - self.ended) + self.yields
        return {"polls": stretches + self.polls, "ended": self.ended, "yields": yields}


@dataclass(frozen=True, slots=True)
class Stated:
    """The figures that a host gives for a node; measured totals do not include them."""

    count: int
    total_ns: int
    elements: int

    def document(self) -> dict[str, int]:
        """The JSON document."""
        return {"count": self.count, "total_ns": self.total_ns, "elements": self.elements}
