"""The local state of a profiler: data that is not in the segment.

Owns: figures by name (bounded times, compressed bytes, cycles, labels), pending work, values that a user supplied, the
time that the profiler was enabled, and the host's mistakes. Must not know: how bricks are timed. Invariants: the size
of this state is limited; the lock is held for a few lines of Python and never while waiting; every mistake is counted,
the first of each kind is logged, and only strict mode raises; a forked child inherits no state.
"""

from __future__ import annotations

import contextlib
import operator
import os
import sys
import threading
import weakref
from time import CLOCK_MONOTONIC_RAW, clock_gettime_ns

from brick_agent._compat.profiler.pending import Waiting
from brick_agent._compat.profiler.report import printable
from brick_agent._compat.profiler.stats import BrickStats
from brick_agent._core import _refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from enum import IntEnum
    from typing import Any, TypeVar

    Member = TypeVar("Member", bound=IntEnum)

NAMES_MAX = 4096
_AMOUNT_MAX = 1 << 48
_SHOWN_MAX = 80


class LocalTotals:
    """Figures, pending work and mistakes of one profiler."""

    def __init__(self) -> None:
        self.enabled_ns: int | None = None  # when the profiler was enabled; None: it is disabled
        self._logged: set[str] = set()  # kinds of mistakes; a reset keeps them, so that no kind is logged twice
        self.forked()
        _all.add(self)

    def forked(self) -> None:
        """Create new state in a forked child, because the parent may have held the lock."""
        self.lock = threading.RLock()  # protects figures and pending work while they change
        self.forget()

    def forget(self) -> None:
        """Reset everything."""
        self.waiting = Waiting()
        self.named: dict[str, BrickStats] = {}
        self.supplied: dict[str, object] = {}  # values that a user supplied for the whole profiler
        self._was_enabled_ns = 0
        if self.enabled_ns is not None:
            self.enabled_ns = now_ns()
        self.mistakes: dict[str, int] = {}  # the number of mistakes of each kind

    def disable(self, now_ns: int) -> None:
        """Stop counting the time for which the profiler is enabled."""
        self._was_enabled_ns, self.enabled_ns = self.passed_ns(now_ns), None

    def passed_ns(self, now_ns: int) -> int:
        """Return how long the profiler was enabled, up to `now_ns`."""
        return self._was_enabled_ns + (0 if self.enabled_ns is None else now_ns - self.enabled_ns)

    def of(self, name: str) -> BrickStats:
        """Return the figures of a name; after the first NAMES_MAX names, all other names share one entry."""
        if name not in self.named and len(self.named) >= NAMES_MAX:
            name = "other"
        return self.named.setdefault(name, BrickStats(name))

    def amount(self, value: Any) -> int:
        """Check an amount that the writer does not check; an invalid amount is counted and becomes 0."""
        n = amount(value)
        if n is None:
            self.refuse("amounts", f"an amount must be an integer from 0 to 2^48, not {shown(value)}")
        return n or 0

    def refuse(self, kind: str, message: str, cause: BaseException | None = None) -> None:
        """Count a mistake, here and in the segment, and log the first of its kind."""
        if os.environ.get("BRICKD_STRICT") == "1":
            raise ValueError(f"brick_agent: {message} (BRICKD_STRICT=1)") from cause
        _refused()
        with self.lock:
            self.mistakes[kind] = self.mistakes.get(kind, 0) + 1
            first = kind not in self._logged
            self._logged.add(kind)
        if first and sys.stderr is not None:
            with contextlib.suppress(Exception):  # stderr may be closed
                sys.stderr.write(f"brickd: {message}\n")


_all: weakref.WeakSet[LocalTotals] = weakref.WeakSet()


def _forked() -> None:
    for each in _all:
        each.forked()


os.register_at_fork(after_in_child=_forked)


def now_ns() -> int:
    """Return the time of the machine's monotonic clock."""
    return clock_gettime_ns(CLOCK_MONOTONIC_RAW)


def amount(value: Any) -> int | None:
    """Return the amount as an integer, or None if it is invalid. The writer counts invalid amounts."""
    try:
        n = operator.index(value)
    except Exception:
        return None
    return n if 0 <= n <= _AMOUNT_MAX else None


def member(of: type[Member], value: object, names: Mapping[str, Member] | None = None) -> Member | None:
    """Return a member of an enumeration, which may be given as the member or by its name; None: unknown."""
    if isinstance(value, of):
        return value
    return (names or of.__members__).get(value) if isinstance(value, str) else None


def shown(value: object) -> str:
    """Return the repr of an argument on one line; if its repr raises, only its type."""
    try:
        text = repr(value)
    except Exception:
        text = f"a value of type {type(value).__name__}"
    return printable(text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}…")
