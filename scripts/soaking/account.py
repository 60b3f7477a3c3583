"""A worker's account of its work, in a mapped file that survives SIGKILL.

A thread writes how much work it will do, does the work, and writes that the work is done. If the process is killed at
any moment, the amount of completed work is between the two written numbers. Each thread has its own row, so two threads
never write the same number.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

ROWS = 8  # the number of threads
KINDS = ("spans", "defer", "measured", "finalize")
_ENDED = 0  # the index of the word that says whether the worker ended by itself
_HEAD = 1


class Bounds(NamedTuple):
    """The smallest and the largest possible amount."""

    low: int
    high: int

    def plus(self, other: Bounds) -> Bounds:
        """Return the sum of two bounds."""
        return Bounds(self.low + other.low, self.high + other.high)

    def off(self, found: int) -> int:
        """Return the distance of a number from the bounds; it is 0 inside the bounds."""
        return max(self.low - found, found - self.high, 0)


class Account:
    """The account of one worker; `kinds` are the kinds of work."""

    def __init__(self, path: Path, kinds: Sequence[str] = KINDS) -> None:
        """Open the account at the path; create an empty account if it is missing."""
        self._kinds = kinds
        self._row_words = 2 * len(kinds)  # for each kind of work, a row has the amounts begun and done
        size = (_HEAD + ROWS * self._row_words) * 8
        with path.open("a+b") as file:
            file.truncate(size)
            self._bytes = mmap.mmap(file.fileno(), size)
        # The numbers are 64-bit words that are stored and loaded atomically, because another process reads them.
        self._words = memoryview(self._bytes).cast("Q")

    @contextmanager
    def about_to(self, row: int, kind: str, n: int) -> Iterator[None]:
        """Count `n` units of work before and after the `with` block that does the work."""
        at = _HEAD + row * self._row_words + 2 * self._kinds.index(kind)
        self._words[at] += n
        yield
        self._words[at + 1] += n

    def end(self) -> None:
        """Record that all work is done, and that the process ends by itself."""
        self._words[_ENDED] = 1

    @property
    def ended(self) -> bool:
        """Return whether the process ended by itself."""
        return self._words[_ENDED] == 1

    def read(self, kind: str) -> Bounds:
        """Return the bounds of the work of a kind so far. The upper bound is read last, because the worker may
        continue.
        """
        begun = range(_HEAD + 2 * self._kinds.index(kind), len(self._words), self._row_words)
        done = sum(self._words[at + 1] for at in begun)
        return Bounds(done, sum(self._words[at] for at in begun))

    def close(self) -> None:
        """Close the account."""
        self._words.release()
        self._bytes.close()
