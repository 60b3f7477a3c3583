"""What a profiler keeps by itself, since no summary of a segment can hold it.

Owns: figures by name (what was only bounded, compressed bytes, cycles, labels), what pends, what a user supplied, and
the host's mistakes. Must not know: how anything is timed. Invariants: all of it is limited; the lock is held for some
lines of Python and never while anything waits; a mistake is counted, the first of a kind is said, and none raises but
in strict mode; a forked child has nothing of its parent's.
"""

from __future__ import annotations

import operator
import os
import sys
import threading
import weakref

from brick_agent._handed import Waiting
from brick_agent._stats import BrickStats

# typing takes longer to import than everything else here together: only type checkers see it.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

NAMES_MAX = 4096  # the others share one
_AMOUNT_MAX = 1 << 48


class Kept:
    """What is kept.

    Attributes:
        lock: to be held by whoever changes figures or settles what pends.
        waiting: what pends.
        named: figures by name.
        supplied: what a user said of the whole and nobody measured.
        mistakes: how many, by kind.
    """

    def __init__(self) -> None:
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
        self.mistakes: dict[str, int] = {}

    def of(self, name: str) -> BrickStats:
        """The figures of a name."""
        if name not in self.named and len(self.named) >= NAMES_MAX:
            name = "other"
        return self.named.setdefault(name, BrickStats(name))

    def amount(self, value: Any) -> int:
        """What the writer would take for an amount, which knows nothing of this one; 0 where it is none."""
        n = amount(value)
        if not n and value != 0:
            self.refuse("amounts", f"an amount must be an integer from 0 to 2^48, not {value!r}")
        return n

    def refuse(self, what: str, wanted: str, cause: BaseException | None = None) -> None:
        """A mistake of that kind, and what was wanted."""
        if os.environ.get("BRICKD_STRICT") == "1":
            raise ValueError(f"brick_agent: {wanted} (BRICKD_STRICT=1)") from cause
        with self.lock:
            self.mistakes[what] = self.mistakes.get(what, 0) + 1
            first = self.mistakes[what] == 1
        if first and sys.stderr is not None:
            sys.stderr.write(f"brickd: {wanted}\n")


_all: weakref.WeakSet[Kept] = weakref.WeakSet()


def _forked() -> None:
    for kept in _all:
        kept.forked()


os.register_at_fork(after_in_child=_forked)


def amount(value: Any) -> int:
    """What the writer takes for an amount; what it takes for none, and counts, is 0."""
    try:
        n = operator.index(value)
    except TypeError:
        return 0
    return n if 0 <= n <= _AMOUNT_MAX else 0
