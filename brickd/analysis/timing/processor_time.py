"""Processor time as additional evidence: does a worker use more of it for the same work?

Owns: the attribution of a worker's processor time to one brick. Must not know: how processor time is measured, which
worker is named. Invariants: A brick is not chosen if its own call times contradict the choice. Without the kernel's
accounting there is no evidence.

On a busy host, call times are mostly noise: a call of 6 ms takes 200 to 700 ms. A worker's processor time has much less
noise: at a measured load of 30 to 65, slots of equal workers differ by 4 %. But the processor time of a worker is only
one number, which does not say in which brick it was spent. So the brick is found in these steps:

1. The work of a worker in a slot is a sum over its calls. Each call adds the median time of its brick. The worker's
   processor time per unit of work is divided by the median of all workers. The logarithms of these quotients, one for
   each slot, are a row of a `Field` (`stats`).
2. If the row stands out, each brick is examined as the cause of the whole excess. For example, if a brick is 40 % of
   the work and the worker takes 40 % longer, then the calls of that brick would take 100 % longer.
3. The call times select the brick. A brick is excluded if it is certain that it is slower by less than half of this
   excess. Of the other bricks, the one whose call times fit best is chosen, but only if it leads each other brick by at
   least `_CHOSEN`. If no brick remains, either another thread of the worker uses the time, or all bricks are equally
   slow.

Processor time can also clear a worker: if a brick takes longer but the worker's processor time does not grow, then the
brick only waits for a processor.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from brickd.analysis.timing.compared_brick import ComparedBrick, Ran
from brickd.analysis.timing.stats import THRESHOLD, Field, Standing
from brickd.analysis.timing.worker_series import Stretch

_CHOSEN = 2.0  # the smallest lead, as a difference of log-likelihoods
_WORTH = THRESHOLD / 2  # a named worker stays named while its score is above half of the threshold
_ERRORS = 2  # the true excess may exceed the measured excess by this many errors of measurement
_SHARE_MIN = 0.001  # for a brick with a smaller share of the work, processor time shows nothing
_LEAST, _ERROR_MIN, _EXPONENT_MAX = -0.99, 0.001, 100.0


def witnessed(stretch: Stretch, service: str, bricks: Sequence[ComparedBrick]) -> list[ComparedBrick]:
    """Add the evidence of processor time to a service's bricks; none of them may be a collective."""
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
    """Return the excess of a brick with this share of the work, assuming that it causes the whole excess.

    >>> round(math.exp(_in_one(math.log(1.4), 0.4)), 6)
    2.0
    """
    return math.log1p(max(_LEAST, math.expm1(min(excess, _EXPONENT_MAX)) / share))


def _chosen(bricks: Sequence[ComparedBrick], worker: str, ran: Sequence[Mapping[str, Ran]]) -> int | None:
    """Return the index of the brick that is the cause according to the call times of all bricks; None if undecided."""
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
    """Return the log-likelihood ratio of two assumptions: the brick is slower by `expected`, and it is not slower.

    >>> [round(_ahead(expected, 0.5, 0.1), 1) for expected in (0.5, 1.0, 2.0)]
    [12.5, 0.0, -100.0]
    """
    return expected * (2 * excess - expected) / (2 * max(error, _ERROR_MIN) ** 2)
