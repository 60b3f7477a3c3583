"""What a profiler keeps by itself, since no summary of a segment can hold it.

Owns: figures by name (what was only bounded, compressed bytes, cycles, labels), what pends, what a user supplied, for
how long it was enabled, and the host's mistakes. Must not know: how anything is timed. Invariants: all of it is
limited; the lock is held for some lines of Python and never while anything waits; a mistake is counted, the first of a
kind is said, and none raises but in strict mode, whatever the host gave; a forked child has nothing of its parent's.
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

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from enum import IntEnum
    from typing import Any, TypeVar

    Member = TypeVar("Member", bound=IntEnum)

NAMES_MAX = 4096  # the others share one
_AMOUNT_MAX = 1 << 48
_SHOWN_MAX = 80


class Kept:
    """What is kept.

    Attributes:
        lock: to be held by whoever changes figures or settles what pends.
        waiting: what pends.
        named: figures by name.
        supplied: what a user said of the whole and nobody measured.
        enabled_ns: since when it is enabled; None: it is not.
        mistakes: how many, by kind.
    """

    def __init__(self) -> None:
        self.enabled_ns: int | None = None
        self._said: set[str] = set()  # for the process: a reset says nothing again
        self.forked()
        _all.add(self)

    def forked(self) -> None:
        """Begin anew in a child; its parent's lock may have been held."""
        self.lock = threading.RLock()
        self.forget()

    def forget(self) -> None:
        """Begin anew with everything."""
        self.waiting = Waiting()
        self.named: dict[str, BrickStats] = {}
        self.supplied: dict[str, object] = {}
        self._was_enabled_ns = 0
        if self.enabled_ns is not None:
            self.enabled_ns = now_ns()
        self.mistakes: dict[str, int] = {}

    def enable(self, now_ns: int) -> None:
        """From then on."""
        self.enabled_ns = now_ns

    def disable(self, now_ns: int) -> None:
        """No longer."""
        self._was_enabled_ns, self.enabled_ns = self.passed_ns(now_ns), None

    def passed_ns(self, now_ns: int) -> int:
        """For how long it was enabled, until then."""
        return self._was_enabled_ns + (0 if self.enabled_ns is None else now_ns - self.enabled_ns)

    def of(self, name: str) -> BrickStats:
        """The figures of a name."""
        if name not in self.named and len(self.named) >= NAMES_MAX:
            name = "other"
        return self.named.setdefault(name, BrickStats(name))

    def amount(self, value: Any) -> int:
        """What the writer would take for an amount, which knows nothing of this one; 0 where it is none."""
        n = amount(value)
        if n is None:
            self.refuse("amounts", f"an amount must be an integer from 0 to 2^48, not {shown(value)}")
        return n or 0

    def refuse(self, what: str, wanted: str, cause: BaseException | None = None) -> None:
        """A mistake of that kind, and what was wanted."""
        if os.environ.get("BRICKD_STRICT") == "1":
            raise ValueError(f"brick_agent: {wanted} (BRICKD_STRICT=1)") from cause
        with self.lock:
            self.mistakes[what] = self.mistakes.get(what, 0) + 1
            first = what not in self._said
            self._said.add(what)
        if first and sys.stderr is not None:
            with contextlib.suppress(Exception):  # it may be closed
                sys.stderr.write(f"brickd: {wanted}\n")


_all: weakref.WeakSet[Kept] = weakref.WeakSet()


def _forked() -> None:
    for kept in _all:
        kept.forked()


os.register_at_fork(after_in_child=_forked)


def now_ns() -> int:
    """The machine's monotonic clock."""
    return clock_gettime_ns(CLOCK_MONOTONIC_RAW)


def amount(value: Any) -> int | None:
    """What the writer takes for an amount; None: what it takes for none, and counts."""
    try:
        n = operator.index(value)
    except Exception:
        return None
    return n if 0 <= n <= _AMOUNT_MAX else None


def member(of: type[Member], value: object, names: Mapping[str, Member] | None = None) -> Member | None:
    """Which one is meant, itself or by its name; None: none is."""
    if isinstance(value, of):
        return value
    return (names or of.__members__).get(value) if isinstance(value, str) else None


def shown(value: object) -> str:
    """What a host gave, on a line; what kind of thing it is, where it does not say more."""
    try:
        text = repr(value)
    except Exception:
        text = f"a value of type {type(value).__name__}"
    return printable(text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}…")
