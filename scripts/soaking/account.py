"""A worker's account of its work: a mapped file that survives its SIGKILL.

A thread writes how much it will do, does it, and writes that it is done: whenever its process is killed, the completed
work is between the two. Each thread has a separate row, so two threads never write the same number.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

ROWS = 8  # threads
KINDS = ("spans", "defer", "measured", "finalize")
_ENDED = 0  # the word for a worker that ended by itself
_HEAD = 1


class Bounds(NamedTuple):
    """The smallest and the largest possible amount."""

    low: int
    high: int

    def plus(self, other: Bounds) -> Bounds:
        """The sum of both."""
        return Bounds(self.low + other.low, self.high + other.high)

    def off(self, found: int) -> int:
        """The distance from the bounds: 0 within."""
        return max(self.low - found, found - self.high, 0)


class Account:
    """The account of one worker; `kinds`: of work."""

    def __init__(self, path: Path, kinds: Sequence[str] = KINDS) -> None:
        """Open the account at the path; create an empty one if missing."""
        self._kinds = kinds
        self._row_words = 2 * len(kinds)  # begun and done of each kind
        size = (_HEAD + ROWS * self._row_words) * 8
        with path.open("a+b") as file:
            file.truncate(size)
            self._bytes = mmap.mmap(file.fileno(), size)
        # Complete words, stored and loaded atomically: another process reads them.
        self._words = memoryview(self._bytes).cast("Q")

    @contextmanager
    def about_to(self, row: int, kind: str, n: int) -> Iterator[None]:
        """Count `n` before and after the work of the context."""
        at = _HEAD + row * self._row_words + 2 * self._kinds.index(kind)
        self._words[at] += n
        yield
        self._words[at + 1] += n

    def end(self) -> None:
        """Record that all work is done, and that the process ends by itself."""
        self._words[_ENDED] = 1

    @property
    def ended(self) -> bool:
        """Whether the process ended by itself."""
        return self._words[_ENDED] == 1

    def read(self, kind: str) -> Bounds:
        """Return the work of a kind so far; the worker may continue, so read the upper bound last."""
        begun = range(_HEAD + 2 * self._kinds.index(kind), len(self._words), self._row_words)
        done = sum(self._words[at + 1] for at in begun)
        return Bounds(done, sum(self._words[at] for at in begun))

    def close(self) -> None:
        """Close the account."""
        self._words.release()
        self._bytes.close()
