"""The choice of rows as agent/src/writer/rows.c defines it, in slow and obvious Python, without brickd's C code."""

from __future__ import annotations

import itertools

import numpy as np
from epochs import splitmix64
from fingerprints import Bytes

LOOKED_AT = 4096
ROWS = 4


def window(epoch: int) -> int:
    """Return the positions whose rows are preferred."""
    return 4 << (splitmix64(epoch) >> 61)


def key(row: bytes, epoch: int) -> int:
    first, second = (int.from_bytes(row[n : n + 8], "little") for n in (0, 8))
    return splitmix64(splitmix64(first ^ splitmix64(epoch)) ^ second)


def chosen(tensor: Bytes, epoch: int) -> list[int]:
    """The flat indices of the chosen rows, in order."""
    leading = tensor.shape[:-1]
    position = min(1, len(leading) - 1)
    indices = itertools.product(*map(range, leading))
    ordered = sorted(indices, key=lambda each: each[position] if leading else 0)[:LOOKED_AT]
    ranks: dict[int, tuple[bool, int, int]] = {}
    for each in ordered:
        found = key(tensor[each].tobytes()[:16], epoch)
        inside = not leading or each[position] < window(epoch)
        flat = int(np.ravel_multi_index(each, leading)) if leading else 0
        ranks.setdefault(found, (not inside, found, flat))
    return [flat for _, _, flat in sorted(ranks.values())[:ROWS]]


def turn(epoch: int, turns: int) -> int:
    """Return the turn of an epoch."""
    block = -(-turns // 8) * 8
    return (splitmix64(epoch // block) + epoch) % 2**64 % turns
