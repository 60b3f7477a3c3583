"""What a worker did, by its own account: a mapped file that outlives its SIGKILL.

A thread says how much it is about to do, does it, and says that it has: whenever its process is killed, what it did
lies between the two. Each thread has a row of its own, so that no two write one number.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

ROWS = 8  # threads
KINDS = ("spans", "defer", "measured", "finalize")
_ENDED = 0  # the word that says that it came to its end
_HEAD = 1


class Bounds(NamedTuple):
    """So much was done at least, and at most."""

    low: int
    high: int

    def plus(self, other: Bounds) -> Bounds:
        """Of both together."""
        return Bounds(self.low + other.low, self.high + other.high)

    def off(self, found: int) -> int:
        """How far it is from what may be: 0 within."""
        return max(self.low - found, found - self.high, 0)


class Account:
    """One worker's; `kinds`: of what."""

    def __init__(self, path: Path, kinds: Sequence[str] = KINDS) -> None:
        """The one at the path; an empty one is made where there is none."""
        self._kinds = kinds
        self._row_words = 2 * len(kinds)  # begun and done of each kind
        size = (_HEAD + ROWS * self._row_words) * 8
        with path.open("a+b") as file:
            file.truncate(size)
            self._bytes = mmap.mmap(file.fileno(), size)
        # Whole words, stored and loaded in one: another process looks on.
        self._words = memoryview(self._bytes).cast("Q")

    @contextmanager
    def about_to(self, row: int, kind: str, n: int) -> Iterator[None]:
        """So much is done within."""
        at = _HEAD + row * self._row_words + 2 * self._kinds.index(kind)
        self._words[at] += n
        yield
        self._words[at + 1] += n

    def end(self) -> None:
        """Say that all is done, and that the process ends by itself."""
        self._words[_ENDED] = 1

    @property
    def ended(self) -> bool:
        """Whether it said so."""
        return self._words[_ENDED] == 1

    def read(self, kind: str) -> Bounds:
        """What was done of a kind until now; of a worker that goes on the upper bound is younger than the lower one."""
        begun = range(_HEAD + 2 * self._kinds.index(kind), len(self._words), self._row_words)
        done = sum(self._words[at + 1] for at in begun)
        return Bounds(done, sum(self._words[at] for at in begun))

    def close(self) -> None:
        """Read it no more."""
        self._words.release()
        self._bytes.close()
