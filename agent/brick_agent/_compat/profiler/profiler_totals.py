"""The totals of a BrickProfiler: by brick, by category, by level of tiles.

Owns: which path of the call tree counts for which brick or level. Must not know: reports, how time is measured.
Invariant: each moment of a thread counts once in the sum of the totals.
"""

from __future__ import annotations

from brick_agent._compat.profiler.brick_ids import BrickCategory, BrickId, category_of
from brick_agent._compat.profiler.graph_reports import GraphReports
from brick_agent._compat.profiler.local_totals import now_ns
from brick_agent._compat.profiler.own_segment import OwnTotals, Recorded
from brick_agent._compat.profiler.report import ordered
from brick_agent._compat.profiler.stats import BrickStats, CategoryTotals, by_category, ratio
from brick_agent._compat.profiler.sync_modes import SyncMode
from brick_agent._compat.profiler.tiles import LEVELS, NAMES, TileLevel, TileStats
from brick_agent._core import brick

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

CATEGORIES = tuple(category.name for category in BrickCategory)


class ProfilerTotals(GraphReports):
    """Totals since the profiler was created or reset."""

    def __init__(self, sync: Callable[[], object] | None, mode: SyncMode | str) -> None:
        super().__init__(sync, mode)
        self._recorded, self._tiled = Recorded(), Recorded()

    def brick_stats(self, id: BrickId | int) -> BrickStats:
        """The totals of one of the 15 known bricks.

        >>> brick.BrickProfiler().brick_stats(14).name
        'Sampling'
        """
        known = self._by_id(id)
        name = "other" if known is None else known.name
        return self.stats(name) or BrickStats(name, category_of(name, None))

    stats_for = brick_stats

    def stats(self, name: str) -> BrickStats | None:
        """The totals of a brick of any name (truncated to 120 bytes); None: unknown.

        >>> brick.BrickProfiler().stats("unknown") is None
        True
        """
        if not isinstance(name, str):
            return None
        known = BrickId.from_name(name)
        return self._bricks(self._recorded.read()).get(name if known is None else known.name)

    def all_brick_stats(self) -> list[BrickStats]:
        """The totals of all bricks, the longest first.

        >>> profiler = brick.BrickProfiler.enabled()
        >>> profiler.record_elapsed("gemm", 12_500)
        >>> [each.name for each in profiler.all_brick_stats()]
        ['gemm']
        """
        return ordered(self._bricks(self._recorded.read()).values())

    def brick_names(self) -> list[str]:
        """The names of all bricks, the longest total first.

        >>> brick.BrickProfiler().brick_names()
        []
        """
        return [each.name for each in self.all_brick_stats()]

    def category_stats(self) -> CategoryTotals:
        """The totals of each category: the four that always exist, and the users' own.

        The keys are names. The four categories that always exist can also be looked up by BrickCategory or by number.

        >>> profiler = brick.BrickProfiler.enabled()
        >>> profiler.record_elapsed("Softmax", 12_500)
        >>> profiler.category_stats()["Attention"].percentage
        100.0
        >>> profiler.category_stats()[brick.BrickCategory.Attention].count
        1
        """
        return by_category(self.all_brick_stats(), CATEGORIES)

    def total_tokens(self) -> int:
        """The elements of all bricks.

        >>> brick.BrickProfiler().total_tokens()
        0
        """
        return sum(each.total_elements for each in self.all_brick_stats())

    def total_ns(self) -> int:
        """The time in all bricks; nested bricks count once.

        >>> brick.BrickProfiler().total_ns()
        0
        """
        return sum(each.self_ns for each in self.all_brick_stats())

    def total_throughput(self) -> float:
        """Elements per second, over the time for which the profiler was enabled.

        The predecessor divides by the time in bricks; the JSON has that figure as elements_per_s_in_bricks.

        >>> brick.BrickProfiler().total_throughput()
        0.0
        """
        return ratio(self.total_tokens() * 1e9, self._local.passed_ns(now_ns()))

    def tile_stats(self, level: TileLevel | str) -> TileStats:
        """The totals of the tiles of a level.

        >>> brick.BrickProfiler().tile_stats("Macro").count
        0
        """
        known = self._level(level)
        return TileStats(TileLevel.Macro) if known is None else self.all_tile_stats()[known]

    def all_tile_stats(self) -> list[TileStats]:
        """The totals of all levels, the largest tiles first.

        >>> [each.level.name for each in brick.BrickProfiler().all_tile_stats()]
        ['Macro', 'Midi', 'Micro']
        """
        totals = {level: BrickStats(name) for level, name in NAMES.items()}
        for path in self._tiled.read().paths.values():
            if path.stats.name in LEVELS:
                totals[LEVELS[path.stats.name]].add(path.stats)
        return [
            TileStats(level, of.count, of.total_ns, of.min_ns, of.max_ns, of.min_exact, of.max_exact,
                      of.total_elements, of.total_flops, of)
            for level, of in totals.items()
        ]  # fmt: skip

    def reset_tile_stats(self) -> None:
        """Reset only the tiles.

        >>> brick.BrickProfiler().reset_tile_stats()
        """
        self._tiled.begin()

    def _bricks(self, reading: OwnTotals) -> dict[str, BrickStats]:
        """Return totals by name; the time of tiles counts as self time of their brick."""
        bricks: dict[str, BrickStats] = {}
        for path in reading.paths.values():
            if not path.stats.count:
                continue
            around = path
            while around.stats.name in LEVELS and around.parent in reading.paths:
                around = reading.paths[around.parent]
            if around.stats.name in LEVELS:
                continue
            name = around.stats.name
            if name not in bricks:
                bricks[name] = BrickStats(name, category_of(name, around.declared))
            if around is path:
                bricks[name].add(path.stats)
            else:
                bricks[name].self_ns += path.stats.self_ns
        with self._local.lock:
            # This loop needs a copy, because a signal handler may add an entry in the meantime.
            for name, local in self._local.named.copy().items():
                of = bricks.setdefault(name, BrickStats(name, category_of(name, brick(name).category)))
                of.add(local)
                for figure in ("total_compressed_bytes", "bottleneck", "total_cycles", "min_cycles", "max_cycles",
                               "cycle_count"):  # fmt: skip
                    setattr(of, figure, getattr(local, figure))
        return bricks
