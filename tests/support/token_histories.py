"""Histories and lineages as agent/include/brick_history.h defines them, in slow and obvious Python."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from epochs import splitmix64
from fingerprints import siphash

_ALL = 2**64 - 1


@dataclass(frozen=True)
class Step:
    """What one step computes for a sequence; `shape` is the engine's digest of the step's shape."""

    tokens: Sequence[int]
    shape: int = 0


def sip(key: int, *words: int) -> int:
    return siphash(b"".join(word.to_bytes(8, "little") for word in words), key)


def factors(key: int) -> list[int]:
    return [sip(key, 0x59524F54534948, n) | (n > 0) for n in range(4)]


def sums(tokens: Sequence[int], key: int, content: int = 0) -> list[int]:
    """S of each token."""
    first, *rest = factors(key)
    found, total = [], 0
    for position, token in enumerate(tokens):
        terms = zip(rest, (token, position, content), strict=True)
        total += splitmix64((first + sum(factor * term for factor, term in terms)) & _ALL)
        found.append(total & _ALL)
    return found


def lineages(steps: Sequence[Step]) -> list[int]:
    """L after each step."""
    found, lineage, start = [], 0, 0
    for step in steps:
        way = splitmix64(step.shape ^ splitmix64(0))
        lineage = splitmix64(splitmix64(lineage ^ way) ^ (start << 32 | len(step.tokens)))
        start += len(step.tokens)
        found.append(lineage)
    return found


def rows(steps: Sequence[Step], key: int, content: int = 0) -> list[tuple[int, int, int]]:
    """Position, history and lineage of each row, as records have them."""
    every = [token for step in steps for token in step.tokens]
    ways = [lineage for step, lineage in zip(steps, lineages(steps), strict=True) for _ in step.tokens]
    found = enumerate(zip(sums(every, key, content), ways, strict=True))
    return [(at, sip(key, total, at), sip(key, way, 0x454741454E494C)) for at, (total, way) in found]
