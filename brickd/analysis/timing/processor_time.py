"""Processor time as a second witness: whether a worker runs for longer for the same work, and in which brick.

Owns: what the processor time of whole workers says of one brick. Must not know: how it is measured, who is named.
Invariants: no brick is chosen against its own times; without the kernel's account nothing is said.

On a busy host the times of calls say little: a call of 6 ms takes 200 to 700 ms, by chance. What a worker ran for its
work is nearly free of that: measured at a load of 30 to 65, slots of equal workers differ by 4 %. But it is one number
for each worker. So:

1. The work of a worker in a slot is its calls of each brick, each counted as long as it takes the median worker. Its
   processor time for each unit of work, over the median of all, is a row of a `Field` (`worker_series`).
2. If a row stands out, all of the excess is thought of as in one brick: of a brick that is 40 % of the work, calls take
   +100 % if the worker takes +40 %.
3. The times of all bricks choose which one. A brick that is certainly not slower by half as much is out. Of those that
   are left the one is chosen of which the times are the likeliest; where it is not `_CHOSEN` ahead of all others, none
   is. If none is left, another thread of the worker runs, or all bricks are slow alike.

It is also what acquits a worker: if it runs no longer, a brick of it that takes longer only waits for a processor.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from brickd.analysis.timing.compared_brick import ComparedBrick, Ran
from brickd.analysis.timing.stats import THRESHOLD, Field, Standing
from brickd.analysis.timing.worker_series import Stretch

_CHOSEN = 2.0  # of the logarithm of a likelihood
_WORTH = THRESHOLD / 2  # a worker that is named already stays so down to half of the threshold
_ERRORS = 2  # so many errors above what is measured are likely
_SHARE_MIN = 0.001  # of a smaller one a worker's processor time says nothing
_LEAST, _ERROR_MIN, _EXPONENT_MAX = -0.99, 0.001, 100.0


def witnessed(stretch: Stretch, service: str, bricks: Sequence[ComparedBrick]) -> list[ComparedBrick]:
    """The bricks of a service, none of them a collective, with what the processor time of its workers says."""
    field = Field({worker: stretch.processor(worker) for worker in stretch.workers[service]})
    ran: list[dict[str, Ran]] = [{} for _ in bricks]
    for worker in field.excess:
        standing = field.standing(worker)
        work = [each.totals[worker].calls * each.median_ns if worker in each.totals else 0.0 for each in bricks]
        for number, part in enumerate(work):
            if part > 0 and (share := part / sum(work)) >= _SHARE_MIN:
                excess = _in_one(standing.excess, share)
                most = _in_one(standing.excess + _ERRORS * _error(standing), share)
                ran[number][worker] = Ran(replace(standing, excess=excess), most)
        if standing.score >= _WORTH and (here := _chosen(bricks, worker, ran)) is not None:
            ran[here][worker] = ran[here][worker]._replace(here=True)
    return [replace(each, ran=found) for each, found in zip(bricks, ran, strict=True)]


def _in_one(excess: float, share: float) -> float:
    """The excess of a brick that is such a share of the work, if all is in it.

    >>> round(math.exp(_in_one(math.log(1.4), 0.4)), 6)
    2.0
    """
    return math.log1p(max(_LEAST, math.expm1(min(excess, _EXPONENT_MAX)) / share))


def _chosen(bricks: Sequence[ComparedBrick], worker: str, ran: Sequence[Mapping[str, Ran]]) -> int | None:
    """The number of the brick that is slow, by the times of all; None: they do not say."""
    ahead: dict[int, float] = {}
    for number, brick in enumerate(bricks):
        if worker in ran[number] and worker in brick.field.excess:
            expected, times = ran[number][worker].standing.excess, brick.field.standing(worker)
            if times.excess + _ERRORS * _error(times) >= expected / 2:
                ahead[number] = _ahead(expected, times.excess, _error(times))
    best, second = ([*sorted(ahead, key=ahead.__getitem__, reverse=True), None, None])[:2]
    return best if second is None or best is None or ahead[best] - ahead[second] >= _CHOSEN else None


def _error(standing: Standing) -> float:
    return standing.excess / standing.score if standing.score else 0.0


def _ahead(expected: float, excess: float, error: float) -> float:
    """How much likelier times are if the brick is slower by so much than if it is not: the logarithm.

    >>> [round(_ahead(expected, 0.5, 0.1), 1) for expected in (0.5, 1.0, 2.0)]
    [12.5, 0.0, -100.0]
    """
    return expected * (2 * excess - expected) / (2 * max(error, _ERROR_MIN) ** 2)
