"""Tiles: the pieces of a kernel's loops, by level.

Owns: the levels, their bricks, and their formulas. Must not know: how a tile is timed. Invariants: a tile is recorded
as a span; its time counts for its level, and also for the innermost surrounding brick. Amounts are numbers of 32-bit
floats, as in the predecessor. The bytes of a tile are also recorded, so that `brickd roofline` shows which fraction of
a measured peak each level reaches.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

from brick_agent._compat.profiler.stats import BrickStats, ratio

CATEGORY = "tile"
FLOAT_BYTES = 4


class TileLevel(IntEnum):
    """The memory that holds a tile: L3 or device memory, L2 or shared memory, registers.

    >>> brick.TileLevel.Macro
    <TileLevel.Macro: 0>
    """

    __module__ = "brick_agent"  # pickles name this module, not this file

    Macro = 0
    Midi = 1
    Micro = 2


# The names of the levels' bricks.
NAMES = {level: f"tile.{level.name.lower()}" for level in TileLevel}
LEVELS = {name: level for level, name in NAMES.items()}


@dataclass(frozen=True, slots=True)
class TileStats:
    """The totals of the tiles of one level; BrickStats explains `min_exact` and `max_exact`."""

    level: TileLevel
    count: int = 0
    total_ns: int = 0
    min_ns: int = 0
    max_ns: int = 0
    min_exact: bool = True
    max_exact: bool = True
    total_elements: int = 0
    total_flops: float = 0.0
    # `cv` and `percentile_ns` are calculated from `runs`.
    runs: BrickStats = field(default_factory=lambda: BrickStats(""), repr=False)

    @property
    def cv(self) -> float:
        """The coefficient of variation of the tiles' times."""
        return self.runs.cv

    def percentile_ns(self, percent: float) -> float | None:
        """Return a percentile of the tiles' times, with an error of up to 10 %; None: there are no tiles."""
        return self.runs.percentile_ns(percent)

    @property
    def avg_us(self) -> float:
        """The average time of a tile."""
        return ratio(self.total_ns, self.count) / 1e3

    @property
    def gflops(self) -> float:
        """Billions of floating-point operations per second."""
        return ratio(self.total_flops, self.total_ns)

    @property
    def arithmetic_intensity(self) -> float:
        """Floating-point operations per byte; 0: unknown."""
        return ratio(self.total_flops, self.total_elements * FLOAT_BYTES)

    def fraction_of_peak(self, peak_gflops: float) -> float:
        """Return the fraction of a peak that the tiles reach, at most 1; 0: the peak is unknown."""
        return min(self.gflops / peak_gflops, 1.0) if peak_gflops > 0 else 0.0
