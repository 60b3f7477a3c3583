"""The mean of the usual calls of a brick, from its sum and its histogram.

Owns: which calls are usual, and how their mean is estimated. Must not know: which workers are compared. Invariants: For
a brick without rare calls, the result is exactly the mean. The estimate stays within the bounds of the histogram.

A call is rare if it takes more than twice as long as the median. On a busy host, a call in which the thread lost its
processor takes up to a thousand times as long as the others, and shows nothing about the brick. The median is no
replacement: a bucket is 19 % wide, so on a quiet host the median is less exact than the mean. So the rare calls are
subtracted from the sum, each with the middle of its bucket as its time. If there are too many rare calls, or if they
are too long, the middles of the usual calls' buckets are added up instead. The two estimates are weighted by the errors
that the width of a bucket causes.

The estimate helps if calls are shorter than a time slice of the processor. On a busy host, nearly all longer calls lose
the processor, so the worker's processor time is better evidence.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate

_OCTAVE, _PER_OCTAVE = 5, 4  # the first bucket ends at 2**5 ticks; each power of two then has four buckets
_RARE = _PER_OCTAVE  # a rare call is more than this many buckets above the median
_ERROR = 0.05  # the relative error of a bucket's middle, for an evenly filled bucket that is 2**(1/4) wide
_MIDDLE = (2 ** (1 / _PER_OCTAVE) - 1) / (math.log(2) / _PER_OCTAVE)  # the mean in a bucket divided by its start


def usual_mean(histogram: Sequence[int], total: float) -> float:
    """Return the mean of the usual calls in ticks; 0 without calls.

    >>> usual_mean([4], 40.0), usual_mean([], 0.0)
    (10.0, 0.0)
    """
    filled = [(bucket, count) for bucket, count in enumerate(histogram) if count]
    calls = sum(count for _, count in filled)
    if not calls:
        return 0.0
    below = accumulate(count for _, count in filled)
    median = next(bucket for (bucket, _), seen in zip(filled, below, strict=True) if 2 * seen >= calls)
    usual = [(bucket, count) for bucket, count in filled if bucket <= median + _RARE]
    rare = filled[len(usual) :]
    if not rare:
        return total / calls
    number = sum(count for _, count in usual)
    low, high = sum(count * _begin(bucket) for bucket, count in usual), sum(c * _begin(b + 1) for b, c in usual)
    middles = sum(count * _middle(bucket) for bucket, count in usual)
    subtracted = total - sum(count * _middle(bucket) for bucket, count in rare)
    # The errors of rare calls are independent. The errors of similar calls in one bucket add up.
    noise = _ERROR**2 * sum(count * _middle(bucket) ** 2 for bucket, count in rare)
    if rare[-1][0] == len(histogram) - 1:  # the last bucket has no upper bound
        noise = math.inf
    weight = 1 / (1 + noise / (_ERROR * middles) ** 2)
    estimate = middles + (weight * (subtracted - middles) if weight else 0.0)
    return min(max(estimate, low), high) / number


def _begin(bucket: int) -> float:
    return float(2 ** (_OCTAVE + bucket / _PER_OCTAVE)) if bucket else 0.0


def _middle(bucket: int) -> float:
    return _begin(bucket) * _MIDDLE if bucket else 2.0 ** (_OCTAVE - 1)
