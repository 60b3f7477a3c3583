"""The sampling epoch: a number on all control pages. Workers use it to choose the steps to record.

Owns: when the epoch changes, and how it is distributed to all workers. Must not know: how a step is chosen
(`agent/src/writer/draw.h`). Invariants: All workers get a new epoch in one call. A new worker gets the current epoch. A
daemon that ends removes the epoch. A worker whose control page cannot be written uses its own clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from brickd.base.units import SECOND
from brickd.daemon.attachment import Attached
from brickd.shm import _reader

_NUMBERS = 2**32
_NONE = 0
EPOCH_NS = _reader.EPOCH_SECONDS * SECOND


class Epochs:
    """Counts epochs of `every_ns` since 1970, as workers without a daemon do."""

    def __init__(self, every_ns: int = EPOCH_NS, clock: Callable[[], int] = time.time_ns) -> None:
        self._every_ns, self._clock = every_ns, clock
        self._written = _NONE

    def move(self, workers: Callable[[], Iterable[Attached]], *, changed: bool) -> None:
        """Write the current epoch wherever it is missing; `changed`: whether workers came or went."""
        word = self._word()
        if word != self._written or changed:
            self._write(workers(), word)

    def end(self, workers: Iterable[Attached]) -> None:
        """Remove the epoch, so that the workers use their own clocks."""
        self._write(workers, _NONE)

    def _word(self) -> int:
        number = self._clock() // self._every_ns
        until = number * self._every_ns // SECOND + _reader.EPOCH_HOLDS
        return until % _NUMBERS << 32 | number % _NUMBERS

    def _write(self, workers: Iterable[Attached], word: int) -> None:
        late = [each for each in workers if each.epoch != word and each.segment.has_epochs]
        _reader.write_all([each.segment.epoch_write(word) for each in late])
        for each in late:
            each.epoch = word
        self._written = word
