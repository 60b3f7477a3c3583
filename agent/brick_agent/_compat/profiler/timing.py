"""Time, under the seed profiler's names: the half of BrickProfiler that a host calls as it works.

Owns: whether and how what is started is timed, timers, the sync modes, the epoch. Must not know: statistics, reports.
Invariants: while it is disabled, or Off, no clock is read and nothing is recorded; what is timed goes through the
lanes, as everything else here does; of what is deferred the segment and what is kept here have the same start; what
was started in one mode ends in it; a sync function that calls its own profiler is not called by that again.
"""

from __future__ import annotations

import operator
from enum import IntEnum
from threading import get_ident

from brick_agent._compat.profiler.brick_ids import SPOKEN, BrickId
from brick_agent._compat.profiler.local_totals import Kept, amount, member, now_ns, shown
from brick_agent._compat.profiler.tiles import CATEGORY, FLOAT_BYTES, NAMES, TileLevel
from brick_agent._core import _deferred, brick, layer
from brick_agent._core import finalize as _finalize

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Literal, SupportsFloat, SupportsIndex

    from brick_agent._core import Brick

_STREAM = 0x6272_696B_0000  # of the first profiler's deferred work: none that a device's handle is likely to be

_known = tuple(brick(known.name, SPOKEN[known.category]) for known in BrickId)
_named = {name: _known[known] for name, known in BrickId.__members__.items()}
_tiles = {level: brick(name, CATEGORY) for level, name in NAMES.items()}
_made = 0


class SyncMode(IntEnum):
    """When a profiler waits for the device. Off is the seed's None: nothing is timed.

    >>> brick.SyncMode.Deferred
    <SyncMode.Deferred: 2>
    """

    __module__ = "brick_agent"  # the path in pickles, wherever this file is

    Immediate = 0
    PerLayer = 1
    Deferred = 2
    Off = 3


_MODES = {"None": SyncMode.Off, **SyncMode.__members__}


class BrickTimer:
    """What start gives and stop takes, once."""

    __slots__ = ("_brick", "_profiler", "_start_ns", "_waits")

    def __init__(self, profiler: Timing | None, of: Brick, start_ns: int | None, waits: bool) -> None:
        self._profiler = profiler
        self._brick = of
        self._start_ns = start_ns  # None: a span is open in the lane
        self._waits = waits

    @property
    def name(self) -> str:
        """Of the brick."""
        return self._brick.name


# Of what is not timed: one for all.
_IDLE = BrickTimer(None, _known[0], None, waits=False)


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
            self._profiler._layer_over()
        finally:
            self._layer.__exit__(kind, error, traceback)


class Timing:
    """What is started and stopped."""

    def __init__(self, sync: Callable[[], object] | None, mode: SyncMode | str) -> None:
        global _made  # noqa: PLW0603
        _made += 1
        self._stream = _STREAM + _made
        self._kept = Kept()
        self._enabled = self._on = self._tiling = False
        self._sync: Callable[[], object] | None = None
        self._mode = SyncMode.Deferred
        self._defers = self._waits = False
        self._syncing: set[int] = set()
        self._epoch_ns: int | None = None
        self.set_sync_mode(mode, sync=sync)

    # ---- how it stands -----------------------------------------------------------------------------------------------

    def enable(self) -> None:
        """Time what is started from now on.

        >>> profiler = brick.BrickProfiler()
        >>> profiler.enable()
        """
        if not self._enabled:
            now = now_ns()
            self._kept.enable(now)
            self._epoch_ns = now if self._epoch_ns is None else self._epoch_ns
            self._enabled = True
            self._settle_mode()

    def disable(self) -> None:
        """Time nothing more; what was started may be stopped still.

        >>> profiler = brick.BrickProfiler.enabled()
        >>> profiler.disable()
        """
        if self._enabled:
            self._kept.disable(now_ns())
            self._enabled = False
            self._settle_mode()

    def is_enabled(self) -> bool:
        """Whether what is started is timed.

        >>> brick.BrickProfiler().is_enabled()
        False
        """
        return self._enabled

    def set_sync_mode(
        self, mode: SyncMode | str, *, sync: Callable[[], object] | Literal[False] | None = False
    ) -> None:
        """When to wait for the device, and, where that is given, by what; None: there is nothing to wait for.

        mode: Immediate, PerLayer, Deferred, or Off, which the seed calls None.

        >>> profiler = brick.BrickProfiler.enabled()
        >>> profiler.set_sync_mode("PerLayer", sync=lambda: None)  # say, torch.cuda.synchronize
        """
        known = member(SyncMode, mode, _MODES)
        if known is None:
            wanted = "a sync mode must be Immediate, PerLayer, Deferred or Off"
            self._kept.refuse("sync modes", f"{wanted}, not {shown(mode)}")
            return
        if sync is not False and sync is not None and not callable(sync):
            wanted = "sync must be a function without arguments, or None"
            self._kept.refuse("sync functions", f"{wanted}, not {shown(sync)}")
            return
        self._mode = known
        if sync is not False:
            self._sync = sync
        self._settle_mode()

    def sync_mode(self) -> SyncMode:
        """When it waits for the device.

        >>> brick.BrickProfiler().sync_mode().name
        'Deferred'
        """
        return self._mode

    def _settle_mode(self) -> None:
        self._defers = self._sync is not None and self._mode in (SyncMode.PerLayer, SyncMode.Deferred)
        self._waits = self._sync is not None and self._mode is SyncMode.Immediate
        self._on = self._enabled and self._mode is not SyncMode.Off

    def reset_epoch(self) -> None:
        """Let elapsed_ns() begin at 0 again; what pends began when it began.

        >>> profiler = brick.BrickProfiler.enabled()
        >>> profiler.reset_epoch()
        """
        self._epoch_ns = now_ns()

    def elapsed_ns(self) -> int:
        """The time since the epoch: since enable(), unless it was reset. 0 before that.

        >>> brick.BrickProfiler().elapsed_ns()
        0
        """
        return 0 if self._epoch_ns is None else max(0, now_ns() - self._epoch_ns)

    # ---- time --------------------------------------------------------------------------------------------------------

    def start_brick(self, id: BrickId | int) -> BrickTimer:
        """Begin one of the 15 that are known.

        >>> profiler = brick.BrickProfiler.enabled()
        >>> timer = profiler.start_brick(0)
        >>> timer.name
        'RmsNorm'
        >>> profiler.stop_brick(timer, 4096)
        """
        if not self._on:
            return _IDLE
        known = self._by_id(id)
        return _IDLE if known is None else self._begin(known)

    def stop_brick(self, timer: BrickTimer, elements: SupportsIndex = 0) -> None:
        """End it, having worked on so many elements.

        >>> profiler = brick.BrickProfiler.enabled()
        >>> profiler.stop_brick(profiler.start_brick(3), elements=128)
        """
        self._end(timer, elements, 0, 0)

    def start(self, name: str, category: str | None = None) -> BrickTimer:
        """Begin a brick of any name; an alias of a known one is that one.

        >>> profiler = brick.BrickProfiler.enabled()
        >>> timer = profiler.start("RoPE")
        >>> timer.name
        'RopeEmbedding'
        >>> profiler.stop(timer)
        """
        return self._begin(by_name(name, category)) if self._on else _IDLE

    def stop(self, timer: BrickTimer, elements: SupportsIndex = 0) -> None:
        """End it, having worked on so many elements.

        >>> profiler = brick.BrickProfiler.enabled()
        >>> profiler.stop(profiler.start("tokenize"), elements=12)
        """
        self._end(timer, elements, 0, 0)

    def record_elapsed(self, name: str, elapsed_ns: SupportsFloat | SupportsIndex, elements: SupportsIndex = 0) -> None:
        """Say how long a brick took that was timed elsewhere.

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
        """The same of what compresses: how many bytes there were, and how many are left.

        >>> profiler = brick.BrickProfiler.enabled()
        >>> profiler.record_elapsed_with_bytes("zstd", 12_500, 1, 4096, 1024)
        >>> profiler.stats("zstd").compression_ratio
        4.0
        """
        if self._on:
            known = by_name(name, None)
            known.record(elapsed_ns, elements, input_bytes)
            with self._kept.lock:
                self._kept.of(known.name).total_compressed_bytes += self._kept.amount(output_bytes)

    def record_cycles(self, name: str, cycles: SupportsIndex) -> None:
        """Say how many of a processor's cycles a brick took once; nobody here counts them.

        >>> profiler = brick.BrickProfiler.enabled()
        >>> profiler.record_cycles("gemm", 30_000)
        """
        if self._on and (n := self._kept.amount(cycles)):
            with self._kept.lock:
                kept = self._kept.of(by_name(name, None).name)
                kept.min_cycles = min(kept.min_cycles, n) if kept.cycle_count else n
                kept.max_cycles = max(kept.max_cycles, n)
                kept.total_cycles += n
                kept.cycle_count += 1

    def _begin(self, of: Brick) -> BrickTimer:
        if self._defers:
            return BrickTimer(self, of, now_ns(), waits=False)
        of.start()
        return BrickTimer(self, of, None, self._waits)

    def _end(
        self, timer: BrickTimer, elements: SupportsIndex, size_bytes: int, flops: SupportsFloat | SupportsIndex
    ) -> None:
        if timer is _IDLE:
            return
        if not isinstance(timer, BrickTimer) or timer._profiler is not self:
            stopped = isinstance(timer, BrickTimer) and timer._profiler is None
            what = "timers stopped twice" if stopped else "timers of others"
            self._kept.refuse(what, f"stop takes a timer that start gave, once, not {shown(timer)}")
            return
        timer._profiler = None
        if timer._start_ns is not None:
            self._hand(timer._brick, timer._start_ns, elements)
            return
        try:
            if timer._waits:
                self._wait()
        finally:
            timer._brick.stop(elements, size_bytes, flops)

    def _wait(self) -> bool:
        """Whether all that was handed to the device is over."""
        sync, thread = self._sync, get_ident()
        if sync is None:
            return True
        if thread in self._syncing:
            return False
        self._syncing.add(thread)
        try:
            sync()
        except Exception as error:
            self._kept.refuse("syncs", f"the sync function raised {shown(error)}", error)
            return False
        finally:
            self._syncing.discard(thread)
        return True

    # ---- deferred work -----------------------------------------------------------------------------------------------

    def layer(self, index: SupportsIndex) -> LayerScope:
        """Let what is started inside know its layer; in the mode PerLayer its end waits for the device.

        >>> profiler = brick.BrickProfiler.enabled(sync=lambda: None, mode="PerLayer")
        >>> with profiler.layer(3):
        ...     profiler.stop(profiler.start("attention"), 128)
        >>> profiler.stats("attention").bounded
        1
        """
        return LayerScope(self, index)

    def _layer_over(self) -> None:
        if self._defers and self._mode is SyncMode.PerLayer:
            self.finalize()

    def record_deferred(self, id: BrickId | int, start_ns: SupportsIndex, elements: SupportsIndex = 0) -> None:
        """Say that work began at that time since the epoch whose end finalize() will know.

        >>> profiler = brick.BrickProfiler.enabled()
        >>> profiler.record_deferred(0, profiler.elapsed_ns(), elements=4096)
        >>> profiler.finalize()
        >>> profiler.brick_stats(0).bounded
        1
        """
        if self._on and (known := self._by_id(id)) is not None:
            self._record_deferred(known, start_ns, elements)

    def record_deferred_dynamic(self, name: str, start_ns: SupportsIndex, elements: SupportsIndex = 0) -> None:
        """The same of a brick of any name.

        >>> profiler = brick.BrickProfiler.enabled()
        >>> profiler.record_deferred_dynamic("moe_gemm", profiler.elapsed_ns())
        >>> profiler.has_pending()
        True
        >>> profiler.finalize()
        """
        if self._on:
            self._record_deferred(by_name(name, None), start_ns, elements)

    def _record_deferred(self, of: Brick, start_ns: SupportsIndex, elements: SupportsIndex) -> None:
        at = self._since_epoch(start_ns, "deferred starts")
        if at is not None:
            self._hand(of, at, elements)

    def _since_epoch(self, ns: SupportsIndex, what: str) -> int | None:
        """When that was; None: it is no time that can have been since the epoch, as of before it was reset."""
        now = now_ns()
        try:
            at = operator.index(ns) + (now if self._epoch_ns is None else self._epoch_ns)
        except Exception:
            at = -1
        if self._epoch_ns is not None and self._epoch_ns <= at <= now:
            return at
        self._kept.refuse(what, f"a time must be one of elapsed_ns() since the last reset_epoch(), not {shown(ns)}")
        return None

    def _hand(self, of: Brick, start_ns: int, elements: SupportsIndex) -> None:
        if _deferred(of, start_ns, self._stream, elements, 0) is None:
            return  # all recording is off
        if not self._kept.waiting.add((start_ns, of.name, amount(elements) or 0)):
            self._kept.refuse("deferred starts without room", "so much is deferred that finalize() should be called")

    def finalize(self, end_ns: SupportsIndex | None = None) -> None:
        """What was deferred is over: wait for the device; or the host did, at that time since the epoch.

        >>> profiler = brick.BrickProfiler.enabled(sync=lambda: None)
        >>> profiler.stop(profiler.start("attention"))
        >>> profiler.finalize()
        >>> profiler.pending_count()
        0
        """
        if not self._kept.waiting:
            return
        if end_ns is None and not self._wait():
            return
        end = now_ns() if end_ns is None else self._since_epoch(end_ns, "finalizes")
        if end is None:
            return
        with self._kept.lock:
            settled = self._kept.waiting.settle(end)
            for name, part_ns, latency_ns, worked_on in settled:
                self._kept.of(name).bound(part_ns, latency_ns, worked_on)
            if not self._kept.waiting:
                _finalize(stream=self._stream)
        if not settled and end_ns is not None and self._kept.waiting:  # and no other thread was faster
            self._kept.refuse("finalizes", "a finalize must not be earlier than all that pends")

    def has_pending(self) -> bool:
        """Whether anything waits for finalize().

        >>> brick.BrickProfiler().has_pending()
        False
        """
        return self.pending_count() > 0

    def pending_count(self) -> int:
        """How much waits for finalize().

        >>> brick.BrickProfiler().pending_count()
        0
        """
        return len(self._kept.waiting)

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
        """Begin a tile of a level: Macro, Midi, Micro. It is timed by the host's clock, and waits for nothing.

        row, col: which one, for whoever reads the code: totals are of levels.

        >>> profiler = brick.BrickProfiler.enabled()
        >>> profiler.enable_tile_profiling()
        >>> profiler.stop_tile(profiler.start_tile("Midi", 0, 3), elements=4096, flops=2 * 4096)
        >>> profiler.tile_stats("Midi").arithmetic_intensity
        0.5
        """
        if not self._tiling or not self._on:
            return _IDLE
        known = self._level(level)
        if known is None:
            return _IDLE
        _tiles[known].start()
        return BrickTimer(self, _tiles[known], None, waits=False)

    def stop_tile(
        self, timer: BrickTimer, elements: SupportsIndex = 0, flops: SupportsFloat | SupportsIndex = 0
    ) -> None:
        """End it, having worked on so many 32-bit numbers in so many operations.

        >>> profiler = brick.BrickProfiler.enabled()
        >>> profiler.enable_tile_profiling()
        >>> profiler.stop_tile(profiler.start_tile("Micro"), elements=64, flops=128)
        """
        self._end(timer, elements, FLOAT_BYTES * (amount(elements) or 0), flops)

    def _level(self, level: TileLevel | str) -> TileLevel | None:
        known = member(TileLevel, level)
        if known is None:
            self._kept.refuse("tile levels", f"a level must be Macro, Midi or Micro, not {shown(level)}")
        return known

    def _by_id(self, id: BrickId | int) -> Brick | None:
        if isinstance(id, int) and 0 <= id < len(_known):
            return _known[id]
        self._kept.refuse("brick ids", f"a BrickId must be one of 0 to {len(_known) - 1}, not {shown(id)}")
        return None


def by_name(name: str, category: str | None) -> Brick:
    known = _named.get(name) if isinstance(name, str) else None
    return brick(name, category) if known is None else known
