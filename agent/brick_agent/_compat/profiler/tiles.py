"""Tiles: the pieces that a kernel's loops are cut into, by level, and what their amounts tell of the caches.

Owns: the levels, the bricks that stand for them, and their formulas. Must not know: how a tile is timed. Invariants: a
tile is a span like any other; its time is its level's, and the innermost brick's around it, which would have it too if
nobody had looked at tiles. Amounts are of 32-bit floats, as in the seed, and recorded with their bytes, so that
`brickd roofline` tells what fraction of a measured peak each level reaches.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from brick_agent._compat.profiler.stats import ratio

CATEGORY = "tile"
FLOAT_BYTES = 4


class TileLevel(IntEnum):
    """Where a tile's numbers are to stay: L3 or a device's memory, L2 or shared memory, registers.

    >>> brick.TileLevel.Macro
    <TileLevel.Macro: 0>
    """

    __module__ = "brick_agent"  # the path in pickles, wherever this file is

    Macro = 0
    Midi = 1
    Micro = 2


# What a level is called as a brick.
NAMES = {level: f"tile.{level.name.lower()}" for level in TileLevel}
LEVELS = {name: level for level, name in NAMES.items()}


@dataclass(frozen=True, slots=True)
class TileStats:
    """What the tiles of one level came to.

    Attributes:
        level: which one.
        count: how many.
        total_ns, min_ns, max_ns: how long they took; `min_exact`, `max_exact`: see BrickStats.
        total_elements, total_flops: what they worked on.
    """

    level: TileLevel
    count: int = 0
    total_ns: int = 0
    min_ns: int = 0
    max_ns: int = 0
    min_exact: bool = True
    max_exact: bool = True
    total_elements: int = 0
    total_flops: float = 0.0

    @property
    def avg_us(self) -> float:
        """How long one took on average."""
        return ratio(self.total_ns, self.count) / 1e3

    @property
    def gflops(self) -> float:
        """Billions of floating-point operations per second."""
        return ratio(self.total_flops, self.total_ns)

    @property
    def arithmetic_intensity(self) -> float:
        """Floating-point operations per byte; 0: not known."""
        return ratio(self.total_flops, self.total_elements * FLOAT_BYTES)

    def fraction_of_peak(self, peak_gflops: float) -> float:
        """How much of what the machine could do was done, at most all; 0 where that is not known."""
        return min(self.gflops / peak_gflops, 1.0) if peak_gflops > 0 else 0.0
