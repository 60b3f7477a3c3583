"""The mean of the usual calls of a brick, from its sum and its histogram.

Owns: which calls are usual, and how their mean is estimated. Must not know: who is compared with whom. Invariants: a
brick without rare calls has exactly its mean; the estimate is never outside of what the histogram allows.

A call is rare if it takes more than twice as long as the median: a call in which the thread lost its processor, on a
busy host, takes up to a thousand times as long as its neighbours, and says nothing of the brick. The median itself
would be worse than the mean on a quiet host: a bucket is 19 % wide. So the rare calls are subtracted from the sum, each
as the middle of its bucket, and where they are too many or too long for that, the middles of the usual calls' buckets
count instead: the two estimates are weighed by the errors that the width of a bucket gives them.

This helps calls that are shorter than a turn on the processor. Of longer calls nearly all lose it on a busy host: then
the processor time of the worker says more.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate

_OCTAVE, _PER_OCTAVE = 5, 4  # the first bucket is all below 2**5 ticks; then four for each power of two
_RARE = _PER_OCTAVE  # so many buckets above that of the median
_ERROR = 0.05  # of a bucket's middle, relative: it is 2**(1/4) wide, evenly filled
_MIDDLE = (2 ** (1 / _PER_OCTAVE) - 1) / (math.log(2) / _PER_OCTAVE)  # the mean in a bucket, over its begin


def usual_mean(histogram: Sequence[int], total: float) -> float:
    """The mean of the usual calls, in ticks; 0 without calls.

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
    # A rare call's error is its own; those of calls in one bucket, which are alike, add up.
    noise = _ERROR**2 * sum(count * _middle(bucket) ** 2 for bucket, count in rare)
    if rare[-1][0] == len(histogram) - 1:  # the last bucket has no end
        noise = math.inf
    weight = 1 / (1 + noise / (_ERROR * middles) ** 2)
    estimate = middles + (weight * (subtracted - middles) if weight else 0.0)
    return min(max(estimate, low), high) / number


def _begin(bucket: int) -> float:
    return float(2 ** (_OCTAVE + bucket / _PER_OCTAVE)) if bucket else 0.0


def _middle(bucket: int) -> float:
    return _begin(bucket) * _MIDDLE if bucket else 2.0 ** (_OCTAVE - 1)
