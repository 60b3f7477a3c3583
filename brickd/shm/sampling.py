"""Which steps and sites have their checksums recorded. A user writes this in words, and a segment stores it as numbers.

Owns: the words for a rate, and how patterns become a bitmap. Must not know: segments, the origin of requests.
Invariants: A rate and its words select the same steps. A site is recorded if it matches a pattern or has no name yet.
"""

from __future__ import annotations

import functools
import re
import struct
from collections.abc import Iterable, Sequence
from fnmatch import translate

from brickd.shm import _reader

DEFAULT, ALL, OFF = "default", "all", "off"
OF_MAX = 1_000_000
WANTED = f"off, all, default, or 1/N: one step of every N (N up to {OF_MAX})"
_WORDS = {DEFAULT: 0, OFF: _reader.RATE_NONE, ALL: _reader.RATE_ALL, "1/1": _reader.RATE_ALL}
_SHARE = re.compile(r"1/([1-9][0-9]{0,6})", re.ASCII)
_WORD_BYTES, _WORD_BITS = 8, 64
_SITES_BYTES = _reader.SITES_MAX // 8


def rate_of(words: str) -> int | None:
    """Return the rate in the format of `brick_shm.h`; None if the words are invalid.

    >>> rate_of("1/16") == 2**32 // 16, rate_of("default"), rate_of("1/0")
    (True, 0, None)
    """
    if words in _WORDS:
        return _WORDS[words]
    share = _SHARE.fullmatch(words)
    return None if share is None or int(share[1]) > OF_MAX else (1 << 32) // int(share[1])


def words_of(rate: int) -> str:
    """Return the words for a rate. If several fractions have this rate, return the largest of them.

    >>> words_of(2**32 // 64), words_of(0), words_of(1)
    ('1/64', 'default', 'off')
    """
    for words, number in _WORDS.items():
        if rate == number:
            return words
    return f"1/{(1 << 32) // (rate + 1) + 1}"


def left_out(names: Sequence[str | None], patterns: Iterable[str]) -> int:
    """Return a bitmap with a bit for each site whose kernel matches no pattern. A kernel without a name matches.

    >>> bin(left_out(["mlp", "norm", None, "mlp"], ["m*"]))
    '0b10'
    """
    matches = functools.cache(re.compile("|".join(map(translate, patterns))).match)
    bits = bytearray(_SITES_BYTES)
    for number, name in enumerate(names):
        if name is not None and not matches(name):
            bits[number // 8] |= 1 << number % 8
    return int.from_bytes(bits, "little")


def bits_of(words: Sequence[int]) -> int:
    """Return the bitmap that a control page stores as 64-bit words.

    It has the same bits as the result of `left_out`.
    """
    return int.from_bytes(struct.pack(f"<{len(words)}Q", *words), "little") if any(words) else 0


def changed(before: int, after: int) -> tuple[int, bytes]:
    """Return the offset and the bytes to write to a control page; no bytes if nothing changed."""
    differ = before ^ after
    first = ((differ & -differ).bit_length() - 1) // _WORD_BITS if differ else 0
    end = -(-differ.bit_length() // _WORD_BITS)
    at, behind = first * _WORD_BYTES, end * _WORD_BYTES
    return at, after.to_bytes(_SITES_BYTES, "little")[at:behind]
