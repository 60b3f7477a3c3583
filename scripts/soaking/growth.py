"""Detects whether a daemon grows while workers start and end at a constant rate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from soaking.daemon import Weight
from soaking.judgement import Check
from soaking.samples import Sample

# The first third of the last daemon's time is skipped, because the daemon still fills up to its limits (64 dead
# workers, 1,000 events). The largest value of the second third is compared with the largest value of the last third.
# Single values do not count, because the memory for an answer or a checkpoint sometimes grows Python's heap by some MB.
# Descriptors are checked elsewhere: at the end, there must be as many as before the first worker.
GROWTH_MAX = 1.15
_LOOKS_MIN = 5  # the fewest samples in each third: with fewer, chance decides
_WHAT = ("rss_bytes", "fds", "shm_files", "shm_bytes")


@dataclass(frozen=True)
class Growth:
    """The growth of one amount: its value before the first worker, its value at the end, and its maximum."""

    what: str
    first: int
    last: int
    largest: int


def growth(samples: Sequence[Sample], end: Weight) -> list[Growth]:
    """Return the growth of all amounts."""
    weights = [each.weight for each in samples if each.weight is not None]
    result = []
    for what in _WHAT:
        every = [getattr(weight, what) for weight in weights]
        result.append(Growth(what, every[0], getattr(end, what), max(every)))
    return result


def ratio(samples: Sequence[Sample], ends_at_s: float) -> float | None:
    """Return how much the last daemon's memory grew until the last worker was started; None if there are too few
    samples.
    """
    sizes = [
        each.weight.rss_bytes
        for each in samples
        if each.weight is not None and each.at_s < ends_at_s and each.life == samples[-1].life
    ]
    third = len(sizes) // 3
    return max(sizes[-third:]) / max(sizes[third : 2 * third]) if third >= _LOOKS_MIN else None


def judge(grown: float | None) -> list[Check]:
    """Check whether the daemon's memory stays constant."""
    if grown is None:
        return []
    return [Check("growth of the last daemon's memory", f"{grown:.3f}", f"at most {GROWTH_MAX}", grown <= GROWTH_MAX)]
