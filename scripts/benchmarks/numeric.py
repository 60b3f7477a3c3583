"""The fingerprint of float32 in numpy, as fast as possible, to compare with the one in C.

The code works on pieces that fit into a cache. A matrix product sums the blocks that have the same rotation.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

_PIECE = 1 << 16  # elements in a piece
_PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53)
_CONSTANTS = (np.cbrt(_PRIMES) % 1 * 2**32).astype(np.uint32)
_LANES = np.arange(16, dtype=np.uint32)
_SIGN = np.uint32(1 << 31)
_HASHED = np.uint64(0x1E924B9D737700D7)  # the key of the blocks' hashes: SipHash-2-4 of an empty input, with a zero key

Words = npt.NDArray[np.uint64]


def splitmix64(x: Words) -> Words:
    """Apply the mixing function splitmix64 in place."""
    x += np.uint64(0x9E3779B97F4A7C15)
    x ^= x >> np.uint64(30)
    x *= np.uint64(0xBF58476D1CE4E5B9)
    x ^= x >> np.uint64(27)
    x *= np.uint64(0x94D049BB133111EB)
    x ^= x >> np.uint64(31)
    return x


def fingerprint(array: npt.NDArray[np.float32]) -> tuple[int, npt.NDArray[np.float64], dict[str, float]]:
    """Compute checksum, sketch and statistics of an array of whole blocks and finite numbers, without a key."""
    total, squares, added = 0, 0.0, 0.0
    least, most = np.inf, -np.inf
    bins = np.zeros((16, 16))
    for first in range(0, array.size, _PIECE):
        x = array[first : first + _PIECE]
        words = x.view(np.uint32).reshape(-1, 16)
        h = splitmix64(np.arange(first // 16, first // 16 + len(words), dtype=np.uint64) ^ _HASHED)
        weights = (h >> np.uint64(32)).astype(np.uint32)[:, None] ^ _CONSTANTS
        weights |= np.uint32(1)
        total += int(np.multiply(words, weights, dtype=np.uint64).sum(dtype=np.uint64))
        low = h.astype(np.uint32)
        signed = (words ^ (low[:, None] << (31 - _LANES) & _SIGN)).view(np.float32)
        bins += (low >> np.uint32(16) & np.uint32(15) == _LANES[:, None]).astype(np.float32) @ signed
        least, most = min(least, float(x.min())), max(most, float(x.max()))
        squares += float(np.dot(x, x))
        added += float(x.sum(dtype=np.float64))
    if not np.isfinite(squares):
        raise ValueError("not all elements are finite")
    sketch = sum((bins[turn][np.arange(16) ^ turn] for turn in range(16)), np.zeros(16))
    stats: dict[str, Any] = {"min": least, "max": most, "mean": added / array.size, "l2": squares**0.5}
    return total % 2**64, sketch, stats
