"""When a BrickProfiler measures time, and when it waits for the device.

Owns: sync modes, the sync function, the epoch. Must not know: what is timed. Invariant: if the sync function calls its
profiler, that call does not call the sync function again.
"""

from __future__ import annotations

import itertools
import operator
from enum import IntEnum
from threading import get_ident

from brick_agent._compat.profiler.local_totals import LocalTotals, member, now_ns, shown
from brick_agent._core import Timing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Literal, SupportsIndex

# Each profiler gets its own stream number, from a range that hardly any device uses for handles.
_streams = itertools.count(0x6272_696B_0001)


class SyncMode(IntEnum):
    """When a profiler waits for the device; with Off (None in the predecessor), nothing is timed.

    >>> brick.SyncMode.Deferred
    <SyncMode.Deferred: 2>
    """

    __module__ = "brick_agent"  # pickles name this module, not this file

    Immediate = 0
    PerLayer = 1
    Deferred = 2
    Off = 3


_MODES = {"None": SyncMode.Off, **SyncMode.__members__}


class SyncModes(Timing):
    """Whether and how started bricks are timed."""

    def __init__(self, sync: Callable[[], object] | None, mode: SyncMode | str) -> None:
        super().__init__()
        self._stream = next(_streams)
        self._local = LocalTotals()
        self._enabled = False
        self._sync: Callable[[], object] | None = None
        self._mode = SyncMode.Deferred
        self._syncing: set[int] = set()
        self._epoch_ns: int | None = None
        self.set_sync_mode(mode, sync=sync)

    def enable(self) -> None:
        """Measure the time of bricks that are started from now on.

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
        """Stop timing bricks; bricks that are already started can still be stopped.

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
        """Set when to wait for the device.

        mode: Immediate, PerLayer, Deferred or Off (None in the predecessor). sync: the function that waits, or None.

        >>> profiler = brick.BrickProfiler.enabled()
        >>> profiler.set_sync_mode("PerLayer", sync=lambda: None)  # for example torch.cuda.synchronize
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
        """Return when the profiler waits for the device.

        >>> brick.BrickProfiler().sync_mode().name
        'Deferred'
        """
        return self._mode

    def _settle_mode(self) -> None:
        self._defers = self._sync is not None and self._mode in (SyncMode.PerLayer, SyncMode.Deferred)
        self._waits = self._sync is not None and self._mode is SyncMode.Immediate
        self._on = self._enabled and self._mode is not SyncMode.Off

    def reset_epoch(self) -> None:
        """Restart elapsed_ns() at 0; pending work keeps its start time.

        >>> profiler = brick.BrickProfiler.enabled()
        >>> profiler.reset_epoch()
        """
        self._epoch_ns = now_ns()

    def elapsed_ns(self) -> int:
        """Return the time since the epoch: the last enable() or reset_epoch(); 0 before any such call.

        >>> brick.BrickProfiler().elapsed_ns()
        0
        """
        return 0 if self._epoch_ns is None else max(0, now_ns() - self._epoch_ns)

    def _since_epoch(self, ns: SupportsIndex, what: str) -> int | None:
        """Convert a time since the epoch to a time of the clock; None if the time is refused as impossible."""
        now = now_ns()
        try:
            at = operator.index(ns) + (now if self._epoch_ns is None else self._epoch_ns)
        except Exception:
            at = -1
        if self._epoch_ns is not None and self._epoch_ns <= at <= now:
            return at
        wanted = "a value that elapsed_ns() returned after the last reset_epoch()"
        self._local.refuse(what, f"a time must be {wanted}, not {shown(ns)}")
        return None

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
