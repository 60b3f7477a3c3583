"""Epochs as a consumer writes them, and the choice of steps as `brick_shm.h` defines it."""

from __future__ import annotations

import os
import struct
import time

from conftest import SHM
from forge import field

from brickd.shm import _reader

EPOCH = 41  # a fixed epoch for tests, which does not depend on the clock
_MASK = 2**64 - 1


def splitmix64(number: int) -> int:
    number = (number + 0x9E3779B97F4A7C15) & _MASK
    number = ((number ^ (number >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    number = ((number ^ (number >> 27)) * 0x94D049BB133111EB) & _MASK
    return number ^ (number >> 31)


def step_hash(step: int) -> int:
    """Return the hash of a step, which is the same in all epochs."""
    return splitmix64(step ^ 0xA0761D6478BD642F) >> 32


def draw(step: int, epoch: int = EPOCH) -> int:
    turned = int(f"{epoch:032b}"[::-1], 2)
    return splitmix64(step_hash(step) << 32 | epoch // 64) >> 32 ^ turned


def drawn(step: int, of: int, epoch: int = EPOCH) -> bool:
    """Return whether the rate 1/`of` selects the step in an epoch."""
    return draw(step, epoch) < 2**32 // of


def word(epoch: int = EPOCH, *, holds: int = 50) -> tuple[bytes, int]:
    """Return the word of an epoch that is valid for `holds` seconds, and its offset in a segment.

    An epoch may be valid for at most 60 seconds. Tests use a shorter time, because a worker's coarse clock is some
    milliseconds behind.
    """
    until = (int(time.time()) + holds) % 2**32
    return struct.pack("<Q", until << 32 | epoch), _reader.CONTROL + field("control", "epoch")[0]


def give(file: str, epoch: int = EPOCH, *, holds: int = 50) -> None:
    """Write an epoch into a segment, as a daemon does."""
    with open(SHM / file, "r+b", buffering=0) as segment:
        os.pwrite(segment.fileno(), *word(epoch, holds=holds))
