"""BrickProfiler: the seed profiler's names, for code that was written against it.

    profiler = brick_agent.BrickProfiler.enabled(sync=torch.cuda.synchronize)
    timer = profiler.start_brick(BrickId.RmsNorm)
    ...
    profiler.stop_brick(timer, elements=4096)
    profiler.finalize()
    print(profiler.summary())

Owns: what it tells: statistics, labels, reports, and when they begin anew. Must not know: how time is measured and
where it is kept: it records through the lanes, as everything else here does, so that `brickd` sees it too, and reads
its statistics back from them.

A profiler tells of its process: of every span since it was made, enabled or not, or reset, whoever recorded it; what
`brick.span("x")` did is in `stats("x")`. Reset never touches what others read.

Sync modes act where there is a sync function, which waits for a device. Immediate: it is called before the clock is
read at each stop. PerLayer: work that was started is deferred, and the end of `with profiler.layer(n):` calls it once.
Deferred: finalize() does. Off (the seed's None): nothing is timed. Without a sync function there is nothing to wait
for: what is started is timed by the host's clock until it is stopped, whatever the mode, unless that is Off.

What ends at a common sync is not measured but bounded, and says so: each has the time up to the next start, so that all
of them together have the time that passed. In the segment it is deferred work like any other, which a daemon works out.

What is launched, moved and needed graph_* record (brick_agent._compat.profiler.graph); `brickd tree` shows it.

Invariants: no call raises (but in BRICKD_STRICT=1), not for wrong options, timers or numbers, nor where the sync
function does: that is counted, and told; any thread may call anything, but a timer is stopped by the thread that
started it; each moment of a thread is in the total once.
"""

from __future__ import annotations

import math

from brick_agent._compat.profiler.brick_ids import BrickCategory, BrickId, category_of
from brick_agent._compat.profiler.graph import Graphed
from brick_agent._compat.profiler.local_totals import member, now_ns, shown
from brick_agent._compat.profiler.own_segment import OwnTotals, Recorded
from brick_agent._compat.profiler.report import Told, as_json, as_text, ordered
from brick_agent._compat.profiler.stats import BrickBottleneck, BrickStats, CategoryStats, by_category, ratio
from brick_agent._compat.profiler.tiles import LEVELS, NAMES, TileLevel, TileStats
from brick_agent._compat.profiler.timing import SyncMode, by_name
from brick_agent._core import brick
from brick_agent._core import finalize as _finalize

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import SupportsFloat

_ALWAYS = tuple(category.name for category in BrickCategory)


class BrickProfiler(Graphed):
    """Times bricks under the seed profiler's names, into the same segment as all else; disabled until enable().

    sync: what waits for the device; see set_sync_mode for `mode`.

    >>> profiler = brick.BrickProfiler.enabled()
    >>> timer = profiler.start("rms_norm_of_a_port")
    >>> profiler.stop(timer, elements=4096)
    >>> profiler.stats("rms_norm_of_a_port").total_elements
    4096
    """

    __module__ = "brick_agent"  # the path in pickles, wherever this file is

    def __init__(self, *, sync: Callable[[], object] | None = None, mode: SyncMode | str = SyncMode.Deferred) -> None:
        super().__init__(sync, mode)
        self._recorded, self._tiled = Recorded(), Recorded()

    @classmethod
    def enabled(
        cls, *, sync: Callable[[], object] | None = None, mode: SyncMode | str = SyncMode.Deferred
    ) -> BrickProfiler:
        """One that is enabled.

        >>> brick.BrickProfiler.enabled().is_enabled()
        True
        """
        profiler = cls(sync=sync, mode=mode)
        profiler.enable()
        return profiler

    # ---- tiles -------------------------------------------------------------------------------------------------------

    def tile_stats(self, level: TileLevel | str) -> TileStats:
        """What the tiles of a level came to.

        >>> brick.BrickProfiler().tile_stats("Macro").count
        0
        """
        known = self._level(level)
        return TileStats(TileLevel.Macro) if known is None else self.all_tile_stats()[known]

    def all_tile_stats(self) -> list[TileStats]:
        """The same of all levels, the largest tiles first.

        >>> [each.level.name for each in brick.BrickProfiler().all_tile_stats()]
        ['Macro', 'Midi', 'Micro']
        """
        found = {level: BrickStats(name) for level, name in NAMES.items()}
        for path in self._tiled.read().paths.values():
            if path.stats.name in LEVELS:
                found[LEVELS[path.stats.name]].add(path.stats)
        return [
            TileStats(level, of.count, of.total_ns, of.min_ns, of.max_ns, of.min_exact, of.max_exact,
                      of.total_elements, of.total_flops)
            for level, of in found.items()
        ]  # fmt: skip

    def reset_tile_stats(self) -> None:
        """Begin anew with tiles, and nothing else.

        >>> brick.BrickProfiler().reset_tile_stats()
        """
        self._tiled.begin()

    # ---- statistics --------------------------------------------------------------------------------------------------

    def brick_stats(self, id: BrickId | int) -> BrickStats:
        """What one of the 15 came to.

        >>> brick.BrickProfiler().brick_stats(14).name
        'Sampling'
        """
        known = self._by_id(id)
        name = "other" if known is None else known.name
        return self.stats(name) or BrickStats(name, category_of(name, None))

    def stats(self, name: str) -> BrickStats | None:
        """What a brick of any name came to; None: nothing is known of it. A name of more than 120 bytes is cut.

        >>> brick.BrickProfiler().stats("nobody") is None
        True
        """
        if not isinstance(name, str):
            return None
        known = BrickId.from_name(name)
        canonical = name if known is None else known.name
        return next((each for each in self._bricks(self._recorded.read()).values() if each.name == canonical), None)

    def all_brick_stats(self) -> list[BrickStats]:
        """What all bricks came to, the longest total first.

        >>> profiler = brick.BrickProfiler.enabled()
        >>> profiler.record_elapsed("gemm", 12_500)
        >>> [each.name for each in profiler.all_brick_stats()]
        ['gemm']
        """
        return [each for each in ordered(list(self._bricks(self._recorded.read()).values())) if each.count]

    def brick_names(self) -> list[str]:
        """Their names, in the same order.

        >>> brick.BrickProfiler().brick_names()
        []
        """
        return [each.name for each in self.all_brick_stats()]

    def category_stats(self) -> dict[str, CategoryStats]:
        """What the bricks of each category came to; the four there always are, and users' own.

        >>> profiler = brick.BrickProfiler.enabled()
        >>> profiler.record_elapsed("Softmax", 12_500)
        >>> profiler.category_stats()["Attention"].percentage
        100.0
        """
        return by_category(self.all_brick_stats(), _ALWAYS)

    def total_tokens(self) -> int:
        """Elements of all bricks.

        >>> brick.BrickProfiler().total_tokens()
        0
        """
        return sum(each.total_elements for each in self.all_brick_stats())

    def total_ns(self) -> int:
        """The time in all bricks, where one stands inside another once.

        >>> brick.BrickProfiler().total_ns()
        0
        """
        return sum(each.self_ns for each in self.all_brick_stats())

    def total_throughput(self) -> float:
        """Elements per second of the time that passed while it was enabled.

        The seed divides by the time in bricks; the JSON has that as elements_per_s_in_bricks.

        >>> brick.BrickProfiler().total_throughput()
        0.0
        """
        return ratio(self.total_tokens() * 1e9, self._local.passed_ns(now_ns()))

    def _bricks(self, reading: OwnTotals) -> dict[str, BrickStats]:
        """By name; what tiles took is their brick's own time."""
        found: dict[str, BrickStats] = {}
        for path in reading.paths.values():
            if not path.stats.count:
                continue
            around = path
            while around.stats.name in LEVELS and around.parent in reading.paths:
                around = reading.paths[around.parent]
            if around.stats.name in LEVELS:
                continue
            name = around.stats.name
            if name not in found:
                found[name] = BrickStats(name, category_of(name, around.declared))
            if around is path:
                found[name].add(path.stats)
            else:
                found[name].self_ns += path.stats.self_ns
        with self._local.lock:
            for name, kept in self._local.named.copy().items():  # a signal handler may add one meanwhile
                of = found.setdefault(name, BrickStats(name, category_of(name, brick(name).category)))
                of.add(kept)
                for figure in ("total_compressed_bytes", "bottleneck", "total_cycles", "min_cycles", "max_cycles",
                               "cycle_count"):  # fmt: skip
                    setattr(of, figure, getattr(kept, figure))
        return found

    # ---- labels ------------------------------------------------------------------------------------------------------

    def set_brick_bottleneck(self, name: str, label: BrickBottleneck | str) -> None:
        """Say what limits a brick: Unknown, Memory, Compute. Nobody here measured it, and it is shown so.

        >>> profiler = brick.BrickProfiler()
        >>> profiler.set_brick_bottleneck("gemm", "Compute")
        >>> profiler.stats("gemm").bottleneck.name
        'Compute'
        """
        known = member(BrickBottleneck, label)
        if known is None:
            self._local.refuse("bottlenecks", f"a bottleneck must be Unknown, Memory or Compute, not {shown(label)}")
            return
        with self._local.lock:
            self._local.of(by_name(name, None).name).bottleneck = known

    def set_l2_cache_hit_rate(self, rate: SupportsFloat) -> None:
        """Say how often the L2 cache had it, from 0 to 1; shown as supplied.

        >>> profiler = brick.BrickProfiler()
        >>> profiler.set_l2_cache_hit_rate(1.5)
        >>> profiler.l2_cache_hit_rate()
        1.0
        """
        try:
            given = float(rate)
        except Exception:
            given = float("nan")
        if math.isnan(given):
            self._local.refuse("cache hit rates", f"a cache hit rate must be a number from 0 to 1, not {shown(rate)}")
            return
        self._local.supplied["l2_cache_hit_rate"] = min(max(given, 0.0), 1.0)

    def l2_cache_hit_rate(self) -> float | None:
        """What was said of it.

        >>> brick.BrickProfiler().l2_cache_hit_rate() is None
        True
        """
        rate = self._local.supplied.get("l2_cache_hit_rate")
        return rate if isinstance(rate, float) else None

    def set_zero_copy(self, yes: bool) -> None:
        """Say whether buffers are shared rather than copied; shown as supplied.

        >>> brick.BrickProfiler().set_zero_copy(True)
        """
        try:
            self._local.supplied["zero_copy"] = bool(yes)
        except Exception:
            self._local.refuse("zero copies", f"zero copy must be True or False, not {shown(yes)}")

    def is_zero_copy(self) -> bool:
        """What was said of it.

        >>> brick.BrickProfiler().is_zero_copy()
        False
        """
        return bool(self._local.supplied.get("zero_copy", False))

    # ---- reports -----------------------------------------------------------------------------------------------------

    def summary(self) -> str:
        """All of it, to read: bricks by their total, categories, tiles.

        >>> profiler = brick.BrickProfiler.enabled()
        >>> profiler.record_elapsed("gemm", 12_500, elements=4096)
        >>> "12.5 µs" in profiler.summary()
        True
        """
        return as_text(self._told())

    def to_json(self) -> str:
        """All of it, with its schema_version.

        >>> '"schema_version": 1' in brick.BrickProfiler().to_json()
        True
        """
        return as_json(self._told())

    def _told(self) -> Told:
        reading = self._recorded.read()
        bricks = [each for each in ordered(list(self._bricks(reading).values())) if each.count]
        settings = {
            "enabled": self._enabled,
            "sync_mode": self._mode.name.lower(),
            "syncs": self._sync is not None,
            "tile_profiling": self._tiling,
        }
        lost = reading.ledger | {"torn": reading.torn, "unread": reading.unread} | self._local.mistakes
        return Told(
            settings,
            self._local.passed_ns(now_ns()),
            bricks,
            by_category(bricks, _ALWAYS),
            self.all_tile_stats(),
            dict(self._local.supplied),
            self.pending_count(),
            lost,
        )

    def reset(self) -> None:
        """Begin anew with everything but the settings and the epoch; what pends is forgotten.

        >>> profiler = brick.BrickProfiler.enabled()
        >>> profiler.record_elapsed("gemm", 12_500)
        >>> profiler.reset()
        >>> profiler.total_ns()
        0
        """
        self._recorded.begin()
        self._tiled.begin()
        with self._local.lock:
            if self._local.waiting:
                _finalize(stream=self._stream)
            self._local.forget()
