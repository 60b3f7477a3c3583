"""Processor time as second evidence: does a worker use more of it for its work?

Owns: the attribution of a worker's processor time to one brick. Must not know: how processor time is measured, which
worker is named. Invariants: a brick is never chosen if its own times contradict; without the kernel's accounting there
is no evidence.

On a busy host, the times of calls are mostly noise: a call of 6 ms takes 200 to 700 ms. The processor time of a worker
has much less noise: at a measured load of 30 to 65, slots of equal workers differ by 4 %. But the processor time is
only one number for each worker. So:

1. The work of a worker in a slot is its calls of each brick, each weighted by the time of the median worker. Its
   processor time per unit of work, divided by the median of all workers, is a row of a `Field` (`worker_series`).
2. If a row stands out, its whole excess is attributed to one brick: if the brick is 40 % of the work and the worker
   takes +40 %, then calls of the brick take +100 %.
3. The times of all bricks select that brick. A brick is excluded if it is certainly not slower by half of this excess.
The
   remaining brick with the likeliest times is chosen, but only if its lead over each other brick is at least `_CHOSEN`.
   If no brick remains, another thread of the worker runs, or all bricks are equally slow.

Processor time also clears a worker: if a brick takes longer but the worker's processor time does not grow, then the
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
_WORTH = THRESHOLD / 2  # a named worker stays named above half of the threshold
_ERRORS = 2  # the true excess may exceed the measured one by this many errors of measurement
_SHARE_MIN = 0.001  # processor time shows nothing about a brick with a smaller share
_LEAST, _ERROR_MIN, _EXPONENT_MAX = -0.99, 0.001, 100.0


def witnessed(stretch: Stretch, service: str, bricks: Sequence[ComparedBrick]) -> list[ComparedBrick]:
    """Add the evidence of processor time to a service's bricks, which are not collectives."""
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
    """Return the excess of a brick with this share of the work, if it causes the whole excess.

    >>> round(math.exp(_in_one(math.log(1.4), 0.4)), 6)
    2.0
    """
    return math.log1p(max(_LEAST, math.expm1(min(excess, _EXPONENT_MAX)) / share))


def _chosen(bricks: Sequence[ComparedBrick], worker: str, ran: Sequence[Mapping[str, Ran]]) -> int | None:
    """Return the number of the slow brick, by the times of all bricks; None: undecided."""
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
    """Return the log-likelihood ratio of an excess: slower by `expected`, or not slower.

    >>> [round(_ahead(expected, 0.5, 0.1), 1) for expected in (0.5, 1.0, 2.0)]
    [12.5, 0.0, -100.0]
    """
    return expected * (2 * excess - expected) / (2 * max(error, _ERROR_MIN) ** 2)
