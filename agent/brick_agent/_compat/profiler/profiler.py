"""BrickProfiler: the predecessor's names, for code that uses them.

    profiler = brick_agent.BrickProfiler.enabled(sync=torch.cuda.synchronize)
    timer = profiler.start_brick(BrickId.RmsNorm)
    ...
    profiler.stop_brick(timer, elements=4096)
    profiler.finalize()
    print(profiler.summary())

Owns: labels, reports, and the reset. Must not know: how time is measured and kept. The profiler records into the lanes,
so `brickd` shows the bricks too. The profiler also reads its own statistics from the lanes.

A profiler reports every span that its process has recorded since the profiler was created or reset. It does not matter
who recorded the span, or whether the profiler was enabled at that time: `stats("x")` includes `brick.span("x")`. A
reset does not change the segment.

Sync modes need a sync function, which waits for a device. Immediate: each stop calls the function before it reads the
clock. PerLayer: work is deferred, and the end of `with profiler.layer(n):` calls the function once. Deferred:
finalize() calls the function. Off (None in the predecessor): nothing is timed. Without a sync function, all modes
except Off measure the host's time from start to stop.

Work that ends at a common sync is not measured. Reports mark such work as bounded: each start gets the time up to the
next start, so the sum is the elapsed time. In the segment, such work is ordinary deferred work, which a daemon
evaluates.

The methods graph_* are in brick_agent._compat.profiler.graph and graph_reports; `brickd tree` shows their records.

Invariants: no call raises (except with BRICKD_STRICT=1), even with wrong options, timers or numbers, or if the sync
function raises: mistakes are counted and reported; any thread may call any method, but only the thread that started a
timer may stop it; each moment of a thread counts once in the total.
"""

from __future__ import annotations

import math

from brick_agent._compat.functions import detect_backend
from brick_agent._compat.profiler.local_totals import member, now_ns, shown
from brick_agent._compat.profiler.profiler_totals import CATEGORIES, ProfilerTotals
from brick_agent._compat.profiler.report import MORE_COLUMNS, ProfilerReport, as_json, as_text, ordered
from brick_agent._compat.profiler.report_pages import FORMATS
from brick_agent._compat.profiler.stats import BrickBottleneck, by_category
from brick_agent._compat.profiler.sync_modes import SyncMode
from brick_agent._compat.profiler.timing import by_name
from brick_agent._core import _own_methods
from brick_agent._core import finalize as _finalize

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import SupportsFloat


@_own_methods
class BrickProfiler(ProfilerTotals):
    """Time bricks under the names of the predecessor's profiler; disabled until enable().

    name: the name in reports. sync: the function that waits for the device. mode: see set_sync_mode.

    >>> profiler = brick.BrickProfiler.enabled()
    >>> timer = profiler.start("rms_norm_of_a_port")
    >>> profiler.stop(timer, elements=4096)
    >>> profiler.stats("rms_norm_of_a_port").total_elements
    4096
    """

    __module__ = "brick_agent"  # pickles name this module, not this file

    def __init__(
        self, name: str = "", *, sync: Callable[[], object] | None = None, mode: SyncMode | str = SyncMode.Deferred
    ) -> None:
        super().__init__(sync, mode)
        self.name = name if isinstance(name, str) else ""
        if self.name is not name:
            self._local.refuse("names", f"a profiler's name must be a string, not {shown(name)}")

    @classmethod
    def enabled(
        cls, name: str = "", *, sync: Callable[[], object] | None = None, mode: SyncMode | str = SyncMode.Deferred
    ) -> BrickProfiler:
        """Create an enabled profiler.

        >>> brick.BrickProfiler.enabled().is_enabled()
        True
        """
        profiler = cls(name, sync=sync, mode=mode)
        profiler.enable()
        return profiler

    def __repr__(self) -> str:
        state = "enabled" if self._enabled else "disabled"
        return f"BrickProfiler({self.name!r}, {state}, {self._mode.name}, {self.pending_count()} pending)"

    # ---- labels ------------------------------------------------------------------------------------------------------

    def set_brick_bottleneck(self, name: str, label: BrickBottleneck | str) -> None:
        """Set the label that says what limits a brick: Unknown, Memory or Compute; reports show it as supplied.

        >>> profiler = brick.BrickProfiler()
        >>> profiler.set_brick_bottleneck("gemm", "Compute")
        >>> profiler.stats("gemm").bottleneck.name
        'Compute'
        """
        known = member(BrickBottleneck, label)
        if known is None:
            self._local.refuse("bottlenecks", f"a bottleneck must be Unknown, Memory or Compute, not {shown(label)}")
            return
        self._local.of(by_name(name, None).name).bottleneck = known

    def set_l2_cache_hit_rate(self, rate: SupportsFloat) -> None:
        """Set the hit rate of the L2 cache, from 0 to 1; reports show it as supplied.

        >>> profiler = brick.BrickProfiler()
        >>> profiler.set_l2_cache_hit_rate(1.5)
        >>> profiler.l2_cache_hit_rate()
        1.0
        """
        try:
            number = float(rate)
        except Exception:
            number = math.nan
        if math.isnan(number):
            self._local.refuse("cache hit rates", f"a cache hit rate must be a number from 0 to 1, not {shown(rate)}")
            return
        self._local.supplied["l2_cache_hit_rate"] = min(max(number, 0.0), 1.0)

    def l2_cache_hit_rate(self) -> float | None:
        """Return the supplied hit rate of the L2 cache; None: no rate was supplied.

        >>> brick.BrickProfiler().l2_cache_hit_rate() is None
        True
        """
        rate = self._local.supplied.get("l2_cache_hit_rate")
        return rate if isinstance(rate, float) else None

    def set_zero_copy(self, yes: bool) -> None:
        """Set whether buffers are shared instead of copied; reports show it as supplied.

        >>> brick.BrickProfiler().set_zero_copy(True)
        """
        try:
            self._local.supplied["zero_copy"] = bool(yes)
        except Exception:
            self._local.refuse("zero copies", f"zero copy must be True or False, not {shown(yes)}")

    def is_zero_copy(self) -> bool:
        """Return whether buffers are shared, as supplied.

        >>> brick.BrickProfiler().is_zero_copy()
        False
        """
        return bool(self._local.supplied.get("zero_copy", False))

    # ---- reports -----------------------------------------------------------------------------------------------------

    def summary(self) -> str:
        """Return the report as text: the bricks (longest total first), then the categories, then the tiles.

        >>> profiler = brick.BrickProfiler.enabled()
        >>> profiler.record_elapsed("gemm", 12_500, elements=4096)
        >>> "12.5 µs" in profiler.summary()
        True
        """
        return as_text(self._report())

    def report(self, format: str = "text", *, columns: Iterable[str] = ()) -> str:
        """Return the report as text, markdown, html or json.

        columns: additional figures in each table: p95, cv (the coefficient of variation).

        >>> profiler = brick.BrickProfiler.enabled("decode")
        >>> profiler.record_elapsed("gemm", 12_500)
        >>> "| gemm |" in profiler.report("markdown", columns=["p95", "cv"])
        True
        """
        write = FORMATS.get(format) if isinstance(format, str) else None
        if write is None:
            self._local.refuse("formats", f"a format must be {', '.join(FORMATS)}, not {shown(format)}")
        return (write or as_text)(self._report(self._columns(columns)))

    def _columns(self, columns: Iterable[str]) -> tuple[str, ...]:
        try:
            wanted: list[object] = [columns] if isinstance(columns, str) else list(columns)
        except Exception:
            wanted = [columns]
        known = tuple(each for each in wanted if isinstance(each, str) and each in MORE_COLUMNS)
        if len(known) < len(wanted):
            self._local.refuse("columns", f"columns must be {' or '.join(MORE_COLUMNS)}, not {shown(columns)}")
        return known

    def to_json(self) -> str:
        """Return the report as JSON.

        >>> '"schema_version": 1' in brick.BrickProfiler().to_json()
        True
        """
        return as_json(self._report())

    def _report(self, columns: tuple[str, ...] = ()) -> ProfilerReport:
        reading = self._recorded.read()
        bricks = ordered(self._bricks(reading).values())
        settings = {
            "name": self.name,
            "backend": detect_backend(),
            "enabled": self._enabled,
            "sync_mode": self._mode.name.lower(),
            "syncs": self._sync is not None,
            "tile_profiling": self._tiling,
        }
        lost = reading.ledger | {"torn": reading.torn, "unread": reading.unread}
        mistakes = dict(self._local.mistakes)  # the segment counts these mistakes as wrong amounts
        lost["amounts"] = max(0, lost.get("amounts", 0) - sum(mistakes.values()))
        lost |= {kind: n + lost.get(kind, 0) for kind, n in mistakes.items()}
        wall_ns, supplied = self._local.passed_ns(now_ns()), dict(self._local.supplied)
        categories, tiles = by_category(bricks, CATEGORIES), self.all_tile_stats()
        return ProfilerReport(
            settings, wall_ns, bricks, categories, tiles, supplied, self.pending_count(), lost, columns
        )

    def reset(self) -> None:
        """Reset everything except the settings and the epoch. Pending work is dropped.

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
