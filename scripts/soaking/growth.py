"""Whether a daemon grows while as many workers as ever come and go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from soaking.daemon import Weight
from soaking.judgement import Check
from soaking.samples import Sample

# Of the time that one daemon has to itself the first third is not looked at: it fills up to what it keeps (64 dead
# workers, a thousand events). Then the largest of the second third is compared with the largest of the last one. What
# is allocated for one answer or one checkpoint and given back leaves Python's heap larger now and then by some MB, by
# chance earlier or later. Descriptors are not judged here: they are to be as few in the end as before the first worker.
GROWTH_MAX = 1.15
_LOOKS_MIN = 5  # in each third: below that chance decides
_WHAT = ("rss_bytes", "fds", "shm_files", "shm_bytes")


@dataclass(frozen=True)
class Growth:
    """Of one amount: as it was first seen with workers, in the end without any, and at most."""

    what: str
    first: int
    last: int
    largest: int


def growth(samples: Sequence[Sample], end: Weight) -> list[Growth]:
    """Of everything that is weighed."""
    weights = [each.weight for each in samples if each.weight is not None]
    result = []
    for what in _WHAT:
        every = [getattr(weight, what) for weight in weights]
        result.append(Growth(what, every[0], getattr(end, what), max(every)))
    return result


def ratio(samples: Sequence[Sample], ends_at_s: float) -> float | None:
    """By how much the memory of the last daemon grew until nobody came any more; None where too few looks tell."""
    sizes = [
        each.weight.rss_bytes
        for each in samples
        if each.weight is not None and each.at_s < ends_at_s and each.life == samples[-1].life
    ]
    third = len(sizes) // 3
    return max(sizes[-third:]) / max(sizes[third : 2 * third]) if third >= _LOOKS_MIN else None


def judge(grown: float | None) -> list[Check]:
    """Whether its memory stays what it is."""
    if grown is None:
        return []
    return [Check("growth of the last daemon's memory", f"{grown:.3f}", f"at most {GROWTH_MAX}", grown <= GROWTH_MAX)]
