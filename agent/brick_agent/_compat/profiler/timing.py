"""Timing under the predecessor's names: the calls that a host makes while it works.

Owns: deferred work, tiles. Must not know: when the profiler is on, statistics, reports. Timers, start_brick and
stop_brick are in agent/src/python/timing.c.

Invariants: while the profiler is disabled or Off, no clock is read and nothing is recorded; spans go through the lanes;
deferred work has the same start time here and in the segment; a timer ends in the mode in which it began.
"""

from __future__ import annotations

from brick_agent._compat.profiler.brick_ids import AGENT_CATEGORIES, BrickId
from brick_agent._compat.profiler.local_totals import amount, member, now_ns, shown
from brick_agent._compat.profiler.sync_modes import SyncMode, SyncModes
from brick_agent._compat.profiler.tiles import CATEGORY, FLOAT_BYTES, NAMES, TileLevel
from brick_agent._core import _by_name, _deferred, _know, brick, layer
from brick_agent._core import finalize as _finalize

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import SupportsFloat, SupportsIndex

    from brick_agent._core import Brick, BrickTimer

_known = tuple(brick(known.name, AGENT_CATEGORIES[known.category]) for known in BrickId)
_know(_known, {name: _known[known] for name, known in BrickId.__members__.items()})
by_name = _by_name
_tiles = {level: brick(name, CATEGORY) for level, name in NAMES.items()}


class LayerScope:
    """`with profiler.layer(n):`."""

    __slots__ = ("_layer", "_profiler")

    def __init__(self, profiler: TimedWork, index: SupportsIndex) -> None:
        self._profiler = profiler
        self._layer = layer(index)

    def __enter__(self) -> LayerScope:
        self._layer.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if self._profiler._defers and self._profiler._mode is SyncMode.PerLayer:
                self._profiler.finalize()
        finally:
            self._layer.__exit__(kind, error, traceback)


class TimedWork(SyncModes):
    """Records deferred work, tiled work, and work that was timed elsewhere."""

    _tiling = False

    # ---- time --------------------------------------------------------------------------------------------------------

    def record_elapsed(self, name: str, elapsed_ns: SupportsFloat | SupportsIndex, elements: SupportsIndex = 0) -> None:
        """Record a brick that was timed elsewhere.

        >>> profiler = brick.BrickProfiler.enabled()
        >>> profiler.record_elapsed("gemm", 12_500, elements=4096)
        """
        if self._on:
            by_name(name, None).record(elapsed_ns, elements)

    def record_elapsed_with_bytes(
        self,
        name: str,
        elapsed_ns: SupportsFloat | SupportsIndex,
        elements: SupportsIndex,
        input_bytes: SupportsIndex,
        output_bytes: SupportsIndex,
    ) -> None:
        """Record a brick that compresses data, with its bytes before and after compression.

        >>> profiler = brick.BrickProfiler.enabled()
        >>> profiler.record_elapsed_with_bytes("zstd", 12_500, 1, 4096, 1024)
        >>> profiler.stats("zstd").compression_ratio
        4.0
        """
        if self._on:
            known = by_name(name, None)
            known.record(elapsed_ns, elements, input_bytes)
            with self._local.lock:
                self._local.of(known.name).total_compressed_bytes += self._local.amount(output_bytes)

    def record_cycles(self, name: str, cycles: SupportsIndex) -> None:
        """Record the cycles of one run of a brick, as counted by the host.

        >>> profiler = brick.BrickProfiler.enabled()
        >>> profiler.record_cycles("gemm", 30_000)
        """
        if self._on and (n := self._local.amount(cycles)):
            with self._local.lock:
                stats = self._local.of(by_name(name, None).name)
                stats.min_cycles = min(stats.min_cycles, n) if stats.cycle_count else n
                stats.max_cycles = max(stats.max_cycles, n)
                stats.total_cycles += n
                stats.cycle_count += 1

    def _refuse_timer(self, timer: object, stopped: bool) -> None:
        what = "timers stopped twice" if stopped else "timers of others"
        seen = "a timer that was stopped before" if stopped else shown(timer)
        self._local.refuse(what, f"stop takes a timer that start() of the same profiler returned, not {seen}")

    # ---- deferred work -----------------------------------------------------------------------------------------------

    def layer(self, index: SupportsIndex) -> LayerScope:
        """Set the layer of the bricks that are started inside.

        In the mode PerLayer, the end of the layer waits for the device.

        >>> profiler = brick.BrickProfiler.enabled(sync=lambda: None, mode="PerLayer")
        >>> with profiler.layer(3):
        ...     profiler.stop(profiler.start("attention"), 128)
        >>> profiler.stats("attention").bounded
        1
        """
        return LayerScope(self, index)

    def record_deferred(self, id: BrickId | int, start_ns: SupportsIndex, elements: SupportsIndex = 0) -> None:
        """Record work that began `start_ns` after the epoch; finalize() ends the work.

        >>> profiler = brick.BrickProfiler.enabled()
        >>> profiler.record_deferred(0, profiler.elapsed_ns(), elements=4096)
        >>> profiler.finalize()
        >>> profiler.brick_stats(0).bounded
        1
        """
        if self._on:
            self._record_deferred(self._by_id(id), start_ns, elements)

    def record_deferred_dynamic(self, name: str, start_ns: SupportsIndex, elements: SupportsIndex = 0) -> None:
        """Record deferred work of a brick of any name.

        >>> profiler = brick.BrickProfiler.enabled()
        >>> profiler.record_deferred_dynamic("moe_gemm", profiler.elapsed_ns())
        >>> profiler.has_pending()
        True
        >>> profiler.finalize()
        """
        if self._on:
            self._record_deferred(by_name(name, None), start_ns, elements)

    def _record_deferred(self, of: Brick | None, start_ns: SupportsIndex, elements: SupportsIndex) -> None:
        if of is not None and (at := self._since_epoch(start_ns, "deferred starts")) is not None:
            self._defer(of, at, elements)

    def _defer(self, of: Brick, start_ns: int, elements: SupportsIndex) -> None:
        if _deferred(of, start_ns, self._stream, elements, 0) is None:
            return  # all recording is off
        if not self._local.waiting.add((start_ns, of.name, amount(elements) or 0)):
            text = f"{len(self._local.waiting):,} deferred starts are pending, the limit: call finalize()"
            self._local.refuse("deferred starts without room", text)

    def finalize(self, end_ns: SupportsIndex | None = None) -> None:
        """End deferred work.

        Waits for the device, unless `end_ns` is given. `end_ns` means that the host has already waited, until this time
        (nanoseconds since the epoch).

        >>> profiler = brick.BrickProfiler.enabled(sync=lambda: None)
        >>> profiler.stop(profiler.start("attention"))
        >>> profiler.finalize()
        >>> profiler.pending_count()
        0
        """
        if not self._local.waiting:
            return
        if end_ns is None and not self._wait():
            return
        end = now_ns() if end_ns is None else self._since_epoch(end_ns, "finalizes")
        if end is None:
            return
        with self._local.lock:
            settled = self._local.waiting.settle(end)
            for name, part_ns, latency_ns, worked_on in settled:
                self._local.of(name).bound(part_ns, latency_ns, worked_on)
            if not self._local.waiting:
                _finalize(stream=self._stream)
        if not settled and end_ns is not None and self._local.waiting:  # then no other thread has settled the work
            text = f"finalize() must get a time after the start of pending work, not {shown(end_ns)}"
            self._local.refuse("finalizes", text)

    def has_pending(self) -> bool:
        """Return whether work waits for finalize().

        >>> brick.BrickProfiler().has_pending()
        False
        """
        return self.pending_count() > 0

    def pending_count(self) -> int:
        """Return the number of starts that wait for finalize().

        >>> brick.BrickProfiler().pending_count()
        0
        """
        return len(self._local.waiting)

    # ---- tiles -------------------------------------------------------------------------------------------------------

    def enable_tile_profiling(self) -> None:
        """Time tiles from now on.

        >>> brick.BrickProfiler().enable_tile_profiling()
        """
        self._tiling = True

    def disable_tile_profiling(self) -> None:
        """Stop timing tiles.

        >>> brick.BrickProfiler().disable_tile_profiling()
        """
        self._tiling = False

    def is_tile_profiling_enabled(self) -> bool:
        """Return whether tiles are timed.

        >>> brick.BrickProfiler().is_tile_profiling_enabled()
        False
        """
        return self._tiling

    def start_tile(self, level: TileLevel | str, row: int = 0, col: int = 0) -> BrickTimer:
        """Begin a tile of a level (Macro, Midi or Micro), timed by the host's clock without a sync.

        row, col: identify the tile for readers of the code; they are not recorded.

        >>> profiler = brick.BrickProfiler.enabled()
        >>> profiler.enable_tile_profiling()
        >>> profiler.stop_tile(profiler.start_tile("Midi", 0, 3), elements=4096, flops=2 * 4096)
        >>> profiler.tile_stats("Midi").arithmetic_intensity
        0.5
        """
        known = self._level(level) if self._tiling and self._on else None
        return self._begin_tile(None if known is None else _tiles[known])

    def stop_tile(
        self, timer: BrickTimer, elements: SupportsIndex = 0, flops: SupportsFloat | SupportsIndex = 0
    ) -> None:
        """End a tile, with its number of 32-bit elements and of floating-point operations.

        >>> profiler = brick.BrickProfiler.enabled()
        >>> profiler.enable_tile_profiling()
        >>> profiler.stop_tile(profiler.start_tile("Micro"), elements=64, flops=128)
        """
        self.stop(timer, elements, FLOAT_BYTES * (amount(elements) or 0), flops)

    def _level(self, level: TileLevel | str) -> TileLevel | None:
        known = member(TileLevel, level)
        if known is None:
            self._local.refuse("tile levels", f"a level must be Macro, Midi or Micro, not {shown(level)}")
        return known

    def _by_id(self, id: BrickId | int) -> Brick | None:
        if isinstance(id, int) and not isinstance(id, bool) and 0 <= id < len(_known):
            return _known[id]
        self._local.refuse("brick ids", f"a BrickId must be one of 0 to {len(_known) - 1}, not {shown(id)}")
        return None
