"""Timing under the seed profiler's names: the calls that a host makes while it works.

Owns: sync modes, the epoch, deferred work. Must not know: statistics, reports. Timers, start_brick and stop_brick are
in agent/src/python/timing.c.

Invariants: while the profiler is disabled or Off, no clock is read and nothing is recorded; spans go through the lanes;
deferred work has the same start here and in the segment; a timer ends in the mode in which it began; a sync function
that calls its profiler is not called again.
"""

from __future__ import annotations

import itertools
import operator
from enum import IntEnum
from threading import get_ident

from brick_agent._compat.profiler.brick_ids import AGENT_CATEGORIES, BrickId
from brick_agent._compat.profiler.local_totals import LocalTotals, amount, member, now_ns, shown
from brick_agent._compat.profiler.tiles import CATEGORY, FLOAT_BYTES, NAMES, TileLevel
from brick_agent._core import Timing as CoreTiming
from brick_agent._core import _by_name, _deferred, _know, brick, layer
from brick_agent._core import finalize as _finalize

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Literal, SupportsFloat, SupportsIndex

    from brick_agent._core import Brick, BrickTimer

_streams = itertools.count(0x6272_696B_0001)  # a stream for each profiler; unlikely to be the handle of a device

_known = tuple(brick(known.name, AGENT_CATEGORIES[known.category]) for known in BrickId)
_know(_known, {name: _known[known] for name, known in BrickId.__members__.items()})
by_name = _by_name
_tiles = {level: brick(name, CATEGORY) for level, name in NAMES.items()}


class SyncMode(IntEnum):
    """When a profiler waits for the device. Off (None in the seed): nothing is timed.

    >>> brick.SyncMode.Deferred
    <SyncMode.Deferred: 2>
    """

    __module__ = "brick_agent"  # the path in pickles, wherever this file is

    Immediate = 0
    PerLayer = 1
    Deferred = 2
    Off = 3


_MODES = {"None": SyncMode.Off, **SyncMode.__members__}


class LayerScope:
    """`with profiler.layer(n):`."""

    __slots__ = ("_layer", "_profiler")

    def __init__(self, profiler: Timing, index: SupportsIndex) -> None:
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


class Timing(CoreTiming):
    """Starts, stops, and waits for the device."""

    def __init__(self, sync: Callable[[], object] | None, mode: SyncMode | str) -> None:
        super().__init__()
        self._stream = next(_streams)
        self._local = LocalTotals()
        self._enabled = self._tiling = False
        self._sync: Callable[[], object] | None = None
        self._mode = SyncMode.Deferred
        self._syncing: set[int] = set()
        self._epoch_ns: int | None = None
        self.set_sync_mode(mode, sync=sync)

    # ---- settings ----------------------------------------------------------------------------------------------------

    def enable(self) -> None:
        """Time bricks that are started from now on.

        >>> profiler = brick.BrickProfiler()
        >>> profiler.enable()
        """
        if not self._enabled:
            now = now_ns()
            self._local.enabled_ns = now
            self._epoch_ns = now if self._epoch_ns is None else self._epoch_ns
            self._enabled = True
            self._settle_mode()

    def disable(self) -> None:
        """Time no more bricks; started ones may still be stopped.

        >>> profiler = brick.BrickProfiler.enabled()
        >>> profiler.disable()
        """
        if self._enabled:
            self._local.disable(now_ns())
            self._enabled = False
            self._settle_mode()

    def is_enabled(self) -> bool:
        """Whether bricks are timed.

        >>> brick.BrickProfiler().is_enabled()
        False
        """
        return self._enabled

    def set_sync_mode(
        self, mode: SyncMode | str, *, sync: Callable[[], object] | Literal[False] | None = False
    ) -> None:
        """Set when to wait for the device; `sync`: the function that waits, or None.

        mode: Immediate, PerLayer, Deferred, or Off, which the seed calls None.

        >>> profiler = brick.BrickProfiler.enabled()
        >>> profiler.set_sync_mode("PerLayer", sync=lambda: None)  # say, torch.cuda.synchronize
        """
        known = member(SyncMode, mode, _MODES)
        if known is None:
            modes = "Immediate, PerLayer, Deferred or Off"
            self._local.refuse("sync modes", f"a sync mode must be {modes}, not {shown(mode)}")
            return
        if sync is not False and sync is not None and not callable(sync):
            what = "a function without arguments, or None"
            self._local.refuse("sync functions", f"sync must be {what}, not {shown(sync)}")
            return
        self._mode = known
        if sync is not False:
            self._sync = sync
        self._settle_mode()

    def sync_mode(self) -> SyncMode:
        """When the profiler waits for the device.

        >>> brick.BrickProfiler().sync_mode().name
        'Deferred'
        """
        return self._mode

    def _settle_mode(self) -> None:
        self._defers = self._sync is not None and self._mode in (SyncMode.PerLayer, SyncMode.Deferred)
        self._waits = self._sync is not None and self._mode is SyncMode.Immediate
        self._on = self._enabled and self._mode is not SyncMode.Off

    def reset_epoch(self) -> None:
        """Restart elapsed_ns() at 0; pending work keeps its start.

        >>> profiler = brick.BrickProfiler.enabled()
        >>> profiler.reset_epoch()
        """
        self._epoch_ns = now_ns()

    def elapsed_ns(self) -> int:
        """The time since the epoch: since enable() or reset_epoch(); 0 before.

        >>> brick.BrickProfiler().elapsed_ns()
        0
        """
        return 0 if self._epoch_ns is None else max(0, now_ns() - self._epoch_ns)

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
        """Record a brick that compresses, with its bytes before and after.

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
        self._local.refuse(what, f"stop takes a timer that start gave, once, not {shown(timer)}")

    def _wait(self) -> bool:
        """Call the sync function; return whether the device has finished its work."""
        sync, thread = self._sync, get_ident()
        if sync is None:
            return True
        if thread in self._syncing:
            return False
        self._syncing.add(thread)
        try:
            sync()
        except Exception as error:
            self._local.refuse("syncs", f"the sync function raised {shown(error)}", error)
            return False
        finally:
            self._syncing.discard(thread)
        return True

    # ---- deferred work -----------------------------------------------------------------------------------------------

    def layer(self, index: SupportsIndex) -> LayerScope:
        """Set the layer of bricks started inside; in mode PerLayer the end waits for the device.

        >>> profiler = brick.BrickProfiler.enabled(sync=lambda: None, mode="PerLayer")
        >>> with profiler.layer(3):
        ...     profiler.stop(profiler.start("attention"), 128)
        >>> profiler.stats("attention").bounded
        1
        """
        return LayerScope(self, index)

    def record_deferred(self, id: BrickId | int, start_ns: SupportsIndex, elements: SupportsIndex = 0) -> None:
        """Record work that began at that time since the epoch; finalize() ends it.

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

    def _since_epoch(self, ns: SupportsIndex, what: str) -> int | None:
        """The clock at a time since the epoch; None: refused, because it is not after the epoch."""
        now = now_ns()
        try:
            at = operator.index(ns) + (now if self._epoch_ns is None else self._epoch_ns)
        except Exception:
            at = -1
        if self._epoch_ns is not None and self._epoch_ns <= at <= now:
            return at
        self._local.refuse(what, f"a time must be one of elapsed_ns() since the last reset_epoch(), not {shown(ns)}")
        return None

    def _defer(self, of: Brick, start_ns: int, elements: SupportsIndex) -> None:
        if _deferred(of, start_ns, self._stream, elements, 0) is None:
            return  # all recording is off
        if not self._local.waiting.add((start_ns, of.name, amount(elements) or 0)):
            self._local.refuse("deferred starts without room", "so much is deferred that finalize() should be called")

    def finalize(self, end_ns: SupportsIndex | None = None) -> None:
        """End deferred work: wait for the device, unless the host did at `end_ns` since the epoch.

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
        if not settled and end_ns is not None and self._local.waiting:  # no other thread has settled them
            self._local.refuse("finalizes", "a finalize must not be earlier than all that pends")

    def has_pending(self) -> bool:
        """Whether work waits for finalize().

        >>> brick.BrickProfiler().has_pending()
        False
        """
        return self.pending_count() > 0

    def pending_count(self) -> int:
        """The number of starts that wait for finalize().

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
        """Time no more tiles.

        >>> brick.BrickProfiler().disable_tile_profiling()
        """
        self._tiling = False

    def is_tile_profiling_enabled(self) -> bool:
        """Whether tiles are timed.

        >>> brick.BrickProfiler().is_tile_profiling_enabled()
        False
        """
        return self._tiling

    def start_tile(self, level: TileLevel | str, row: int = 0, col: int = 0) -> BrickTimer:
        """Begin a tile of a level: Macro, Midi or Micro, timed by the host's clock without a sync.

        row, col: which tile; only for readers of the code, because totals are by level.

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
        """End a tile, with its 32-bit numbers and its floating-point operations.

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
