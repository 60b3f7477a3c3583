"""Stragglers: which worker is slow over the last slots, in which brick, at which cost.

Owns: when a worker is named, why a suspect is not named, the coverage. Must not know: where slots come from, screens.
Invariants: The order of workers changes nothing. If the evidence is weak, no worker is named, and the verdict says so.
A worker that does other work is not called slow. A brick is judged by its self time, so it is not blamed for the bricks
that it calls.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import get_args

from brickd.analysis.timing.compared_brick import ComparedBrick, Evidence, brick
from brickd.analysis.timing.findings import (
    About,
    Confidence,
    Coverage,
    Straggler,
    StragglerVerdict,
    Suspect,
    WaitingWorker,
)
from brickd.analysis.timing.processor_time import witnessed
from brickd.analysis.timing.stats import ROWS_MIN, SLOTS_MIN, THRESHOLD, Field, Standing, median
from brickd.analysis.timing.worker_series import Host, Left, SlotLook, Stretch
from brickd.base.thresholds import Thresholds
from brickd.base.timestamps import Moment
from brickd.base.units import duration, percent

SLOTS = 6  # slots that are judged together
STAYS = 0.5  # a named worker stays named while it exceeds this fraction of each bound
_SECOND = 1e9
_FEW_CALLS, _MANY_CALLS = 100, 500  # calls of the worker with the fewest calls, for low and high confidence
_MANY_WORKERS = 5
_COMPARABLE = 0.5  # an explanation must account for this fraction of an excess
_THROTTLED = 0.5  # throttling is the cause of waiting if it accounts for this fraction of the waiting time
_NONE_NAMED: Mapping[About, Moment] = MappingProxyType({})
_DEFAULTS = Thresholds()


def judge(
    looks: Sequence[SlotLook], named: Mapping[About, Moment] = _NONE_NAMED, thresholds: Thresholds = _DEFAULTS
) -> StragglerVerdict:
    """Compare the workers of each service over the last `SLOTS` looks, which are given oldest first.

    Workers in `named` stay named until they are well below the bounds.
    """
    stretch = Stretch(looks[-SLOTS:])
    suspects: list[Suspect] = []
    waiting: list[WaitingWorker] = []
    coverage = []
    for service, workers in sorted(stretch.workers.items()):
        bricks = [brick(stretch, key) for key in stretch.keys(service)]
        suspects += _of_service(stretch, service, bricks, named, thresholds)
        evidence = Counter(each.evidence for each in bricks)
        waiting += _waiting(stretch, service, named, thresholds)
        unknown = sum(stretch.hosts(worker)[-1].waited is None for worker in workers)
        left = {why: stretch.left[service, why] for why in get_args(Left)}
        coverage.append(
            Coverage(service, len(workers), unknown, **{why: evidence[why] for why in get_args(Evidence)}, **left)
        )
    findings = [suspect.finding for suspect in suspects if not suspect.reason]
    passed = [suspect for suspect in suspects if suspect.reason]
    return StragglerVerdict(
        tuple(sorted(findings, key=lambda finding: (-finding.cost_ns_per_s, finding.about))),
        tuple(sorted(passed, key=lambda suspect: suspect.finding.about)),
        tuple(coverage),
        len(stretch.looks),
        SLOTS_MIN,
        stretch.length_ns,
        stretch.looks[-1].slot.ended if stretch.looks else Moment(0, 0),
        waiting=tuple(sorted(waiting, key=lambda each: (-each.waited, each.about))),
    )


def _waiting(
    stretch: Stretch, service: str, named: Mapping[About, Moment], thresholds: Thresholds
) -> Iterator[WaitingWorker]:
    """Return the workers that wait long for a processor: longer than the others, or longer than an absolute limit."""
    workers = stretch.workers[service]
    hosts = {worker: stretch.hosts(worker) for worker in workers}
    field = Field({worker: [host.waited for host in of] for worker, of in hosts.items()})
    few = len(workers) < ROWS_MIN
    # If most workers may use only one processor each, the user has intended this.
    meant = not few and 2 * sum(of[-1].cpu is not None for of in hosts.values()) > len(workers)
    for worker, of in hosts.items():
        since = named.get(About(service, worker, ""))
        ease = 1.0 if since is None else STAYS
        waited, throttled = _middle(host.waited for host in of), _middle(host.throttled for host in of)
        if waited is None:
            continue
        least = ease * thresholds.waits_alone_percent / 100
        held = (throttled or 0.0) >= _THROTTLED * waited or (of[-1].cpu is not None and not meant)
        if worker in field.excess and _waits_longer(field, worker, ease * thresholds.waits_percent / 100, since):
            standing = field.standing(worker)
            waited, first = field.centre + standing.excess, standing.first
        else:
            first = _since(of, least if held else 2 * least)
            if not (held or few) or len(of) - first < SLOTS_MIN:
                continue
        others = field.centre if field.excess else None
        began = since or stretch.looks[first].slot.began
        yield WaitingWorker(service, worker, waited, others, began, throttled=throttled)


def _waits_longer(field: Field, worker: str, least: float, since: Moment | None) -> bool:
    """Whether a worker waits longer than the others by at least `least`, a fraction of its time."""
    standing, ease = field.standing(worker), 1.0 if since is None else STAYS
    if min(field.excess[worker], standing.excess) < least or standing.score < ease * THRESHOLD:
        return False
    return since is not None or standing.steady


def _since(hosts: Sequence[Host], least: float) -> int:
    """Return the first slot since which the worker has always waited at least `least`, a fraction of its time."""
    return max((n for n, host in enumerate(hosts) if host.waited is None or host.waited < least), default=-1) + 1


def _of_service(
    stretch: Stretch,
    service: str,
    bricks: Sequence[ComparedBrick],
    named: Mapping[About, Moment],
    thresholds: Thresholds,
) -> Iterator[Suspect]:
    """Return the workers that stand out.

    In a collective, a worker is named only if none of its other bricks explains why the others wait for it.
    """
    waits = [each for each in bricks if each.collective]
    works = witnessed(stretch, service, [each for each in bricks if not each.collective])
    slow: set[str] = set()
    for each in works:
        for suspect in _suspects(stretch, each, named, thresholds):
            worker = suspect.finding.about.worker
            if suspect.reason:
                yield suspect
                continue
            slow.add(worker)
            awaited = tuple(wait.key[1] for wait in waits if _awaited(wait, worker))
            yield replace(suspect, finding=replace(suspect.finding, corroborated_by=awaited))
    late: dict[str, Suspect] = {}
    for each in waits:
        for suspect in _suspects(stretch, each, named, thresholds):
            worker, cost = suspect.finding.about.worker, suspect.finding.cost_ns_per_s
            if worker not in slow and (worker not in late or cost > late[worker].finding.cost_ns_per_s):
                late[worker] = suspect
    for worker, suspect in late.items():
        yield replace(suspect, reason=suspect.reason or _explained(stretch, works, worker, suspect.finding))


def _awaited(wait: ComparedBrick, worker: str) -> bool:
    """Return whether the records show that the other workers wait for this one."""
    return wait.field.excess.get(worker, 0.0) > 0 and wait.field.standing(worker).score >= STAYS * THRESHOLD


def _suspects(
    stretch: Stretch, brick: ComparedBrick, named: Mapping[About, Moment], thresholds: Thresholds
) -> Iterator[Suspect]:
    for worker in brick.field.excess:
        about = About(brick.key[0], worker, brick.key[1])
        ease = STAYS if about in named else 1.0
        standing = brick.standing(worker, ease * THRESHOLD)
        if standing.score < ease * THRESHOLD or standing.excess < ease * thresholds.straggler_percent / 100:
            continue
        finding = _finding(stretch, brick, about, standing, ease, named.get(about))
        reason = _excuse(brick, finding, standing, ease, thresholds)
        if not brick.by_processor(worker, ease * THRESHOLD):
            reason = reason or _waits(stretch, brick, finding)
        yield Suspect(finding, reason)


def _finding(
    stretch: Stretch, brick: ComparedBrick, about: About, standing: Standing, ease: float, since: Moment | None
) -> Straggler:
    row, cost = brick.row(about.worker, ease * THRESHOLD), _SECOND * min(standing.excess, 1.0)
    if not brick.collective:
        total, lived_ns = brick.totals[about.worker], stretch.lived_ns(about.worker) or 1
        cost = row.calls / lived_ns * brick.median_ns * (row.excess_percent or 0.0) / 100
        # The cost is at most the worker's time in the brick, and at most one second per second in each thread.
        cost = _SECOND * min(cost, total.self_ns / lived_ns, stretch.hosts(about.worker)[-1].threads)
    return Straggler(
        about,
        brick.category,
        brick.collective,
        row,
        brick.median_ns,
        cost,
        since or stretch.looks[standing.first].slot.began,
        _confidence(brick, standing),
        brick.rows(),
    )


def _confidence(brick: ComparedBrick, standing: Standing) -> Confidence:
    """Return "high" if all evidence is strong, "low" if any of it is weak."""
    workers = len(brick.field.excess)
    calls = min(brick.totals[each].calls for each in brick.field.excess)
    if standing.slots == SLOTS_MIN or workers == ROWS_MIN or calls < _FEW_CALLS:
        return "low"
    certain = standing.score >= 2 * THRESHOLD and standing.slots == SLOTS
    return "high" if certain and workers >= _MANY_WORKERS and calls >= _MANY_CALLS else "medium"


def _excuse(brick: ComparedBrick, finding: Straggler, standing: Standing, ease: float, thresholds: Thresholds) -> str:
    """Say why a worker that stands out is not named; "" if it is named."""
    if ease == 1.0 and not standing.steady:
        return "it is slow in only some of the slots"
    if finding.cost_ns_per_s < ease * thresholds.straggler_cost_percent / 100 * _SECOND:
        return f"the difference costs only {duration(finding.cost_ns_per_s)}/s"
    if brick.collective:
        return ""
    usual = median([total.elements_per_call for total in brick.totals.values()])
    if usual > 0 and finding.row.elements_per_call > 0:
        more = math.log(finding.row.elements_per_call / usual)
        if more >= _COMPARABLE * standing.excess:
            return f"its calls have {percent(100 * math.expm1(more))} more elements"
    return ""


def _waits(stretch: Stretch, brick: ComparedBrick, finding: Straggler) -> str:
    """If the calls of a brick only wait longer for a processor, say that the brick is not slow; else return "".

    If the worker's processor time in this brick is known, it decides. Otherwise the waiting time of all the worker's
    threads must explain the excess.
    """
    worker = finding.about.worker
    calls_ns = {each: total.calls / (stretch.lived_ns(each) or 1) for each, total in brick.totals.items()}
    waited = {each: _middle(host.waited for host in stretch.hosts(each)) for each in calls_ns}
    ran = {each: _middle(host.ran for host in stretch.hosts(each)) for each in calls_ns}
    costs = _COMPARABLE * finding.cost_ns_per_s / _SECOND
    if worker in brick.ran:
        if brick.ran[worker].most >= _COMPARABLE * brick.field.standing(worker).excess:
            return ""
    elif _beyond(waited, calls_ns, worker) < costs or _beyond(ran, calls_ns, worker) >= costs:
        return ""
    usual = median([each for each in waited.values() if each is not None])
    mine = percent(100 * (waited[worker] or 0.0))
    return f"it waits for a processor {mine} of its time (median of all: {percent(100 * usual)})"


def _middle(slots: Iterable[float | None]) -> float | None:
    """Return the median of the known values; None if there are too few."""
    known = [each for each in slots if each is not None]
    return median(known) if len(known) >= SLOTS_MIN else None


def _beyond(parts: Mapping[str, float | None], calls: Mapping[str, float], worker: str) -> float:
    """Return by how much a worker's part exceeds the part that is usual for its number of calls; 0 if unknown."""
    mine = parts[worker]
    others = [part / calls[each] for each, part in parts.items() if part is not None]
    return 0.0 if mine is None else mine - calls[worker] * median(others)


def _explained(stretch: Stretch, works: Sequence[ComparedBrick], worker: str, finding: Straggler) -> str:
    """Say why the others wait for a worker, if its bricks show the reason; "" if they do not."""
    more = {each.key[1]: _more_ns_per_s(stretch, each, worker) for each in works}
    if sum(more.values()) < _COMPARABLE * finding.cost_ns_per_s:
        return ""
    most = max(more, key=lambda name: (more[name], name))
    return f"it spends {duration(more[most])}/s more than the others in {most}, but may do more work there"


def _more_ns_per_s(stretch: Stretch, brick: ComparedBrick, worker: str) -> float:
    """Return a worker's extra time per second in a brick, above the median of its peers."""
    peers = [each for each in stretch.workers[brick.key[0]] if each != worker]

    def share(each: str) -> float:
        total = brick.totals.get(each)
        return 0.0 if total is None else _SECOND * total.self_ns / (stretch.lived_ns(each) or 1)

    return share(worker) - median([share(each) for each in peers])
