"""A report on reading a recording.

Owns: the damaged and missing parts, and their description. Must not know: files, the meaning of chunks. Invariants: All
missing data is reported. The lists of positions and kinds are limited, and what exceeds a limit is counted.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from brickd.base.units import plural

DAMAGES_MAX = 100
_KINDS_MAX = 16


class Damage(NamedTuple):
    """A range of damaged bytes, from `start` up to but not including `end`."""

    start: int
    end: int
    why: str


class DroppedChunks(NamedTuple):
    """How much data the file had no room for: chunks, bytes of the chunks' bodies, and ring slots."""

    chunks: int
    bytes: int
    slots: int


NOTHING = DroppedChunks(0, 0, 0)


@dataclass(slots=True)
class End:
    """The end of the readable data of a file, and the damage before it.

    Attributes:
        at: the offset up to which all valid data has been read.
        ended: whether the writer closed the file; if not, `why` tells why the data ends at `at`.
        damages: the first damaged ranges; `damages_more` counts the others.
        missing: the number of chunks that are known to be missing.
        skipped: the number of chunks of each unknown kind; `skipped_more` counts the chunks of further unknown kinds.
        refused: how much data there was no room for, if the writer closed the file.
    """

    at: int = 0
    ended: bool = False
    why: str = ""
    damages: list[Damage] = field(default_factory=list)
    damages_more: int = 0
    missing: int = 0
    skipped: Counter[int] = field(default_factory=Counter)
    skipped_more: int = 0
    refused: DroppedChunks = NOTHING

    def words(self) -> list[str]:
        """Describe the missing data; empty if there is none."""
        notes = [f"damaged from byte {each.start} to {each.end}: {each.why}" for each in self.damages]
        if self.damages_more:
            notes.append(f"damaged in {plural(self.damages_more, 'more place')}")
        if self.missing:
            notes.append(f"{plural(self.missing, 'chunk is', 'chunks are')} lost")
        if self.why:
            notes.append(self.why)
        for kind, count in sorted(self.skipped.items()):
            notes.append(f"{plural(count, 'chunk')} ignored: this brickd does not know the kind {kind}")
        if self.skipped_more:
            notes.append(
                f"{plural(self.skipped_more, 'chunk')} ignored: this brickd does not know the other kinds either"
            )
        chunks = f"{plural(self.refused.chunks, 'chunk')} of {self.refused.bytes:,} bytes"
        slots = f"{plural(self.refused.slots, 'slot')} of rings"
        if dropped := [each for count, each in ((self.refused.chunks, chunks), (self.refused.slots, slots)) if count]:
            notes.append(f"the recording had no room for {' and '.join(dropped)}")
        return notes

    def damage(self, start: int, end: int, why: str) -> None:
        """Add one damaged range."""
        if len(self.damages) < DAMAGES_MAX:
            self.damages.append(Damage(start, end, why))
        else:
            self.damages_more += 1

    def skip(self, kind: int) -> None:
        """Count a chunk of an unknown kind."""
        if kind in self.skipped or len(self.skipped) < _KINDS_MAX:
            self.skipped[kind] += 1
        else:
            self.skipped_more += 1
