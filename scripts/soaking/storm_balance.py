"""Compares the counts of the storm's workers with brickd's numbers, worker by worker.

Owns: the rule of the comparison. Must not know: processes, how the numbers are made. A worker counts each of its spans
twice, in a file outside of brickd: before the span begins and after it has ended. So for each worker, matched by its
segment's uuid:

    counted after <= shown + removed <= counted before

and for each brick: shown <= counted before. brickd does not list merged dead workers one by one, so these are compared
together, by service. brickd's numbers of a worker must never decrease, so an earlier number raises the lower bound.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from soaking.account import Bounds
from soaking.judgement import Check, equal

_NOTHING = Bounds(0, 0)


@dataclass(frozen=True)
class Counted:
    """The counts of one worker.

    Attributes:
        service: the service of the worker.
        pid: the pid of its process.
        bricks: for each brick, the bounds of its number of spans. The lower bound is the number of spans that have
            ended, and the upper bound is the number that were announced.
    """

    service: str
    pid: int
    bricks: Mapping[str, Bounds]

    @property
    def spans(self) -> Bounds:
        """Return the sum over all bricks."""
        return sum_of(self.bricks.values())

    def since(self, earlier: Counted | None) -> Counted:
        """Return these counts, but with the lower bounds of an earlier reading. All numbers shown since then are within
        these bounds.
        """
        low = {brick: bounds.low for brick, bounds in earlier.bricks.items()} if earlier else {}
        return replace(self, bricks={brick: Bounds(low.get(brick, 0), b.high) for brick, b in self.bricks.items()})


@dataclass(frozen=True)
class Seen:
    """brickd's numbers.

    Attributes:
        workers: the spans of each worker that brickd lists alone, by uuid.
        removed: for each removed worker, by uuid, the spans that are in no total.
        sums: the spans of merged workers, by service, including removed workers.
        added: the number of merged workers, by service.
        bricks: the spans of each brick, over all workers.
    """

    workers: Mapping[str, int] = field(default_factory=dict)
    removed: Mapping[str, int] = field(default_factory=dict)
    sums: Mapping[str, int] = field(default_factory=dict)
    added: Mapping[str, int] = field(default_factory=dict)
    bricks: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, workers: Mapping[str, Any], bricks: Mapping[str, Any]) -> Seen:
        """Read the documents of `brickd workers` and `brickd bricks`."""
        alone = {each["uuid"]: _spans(each) for each in workers["workers"] if each["together"] == 1}
        sums, added = Counter[str](), Counter[str]()
        for each in workers["workers"]:
            if each["together"] > 1:
                sums[each["service"]] += _spans(each)
                added[each["service"]] += each["together"]
        removed: Counter[str] = Counter()
        for each in workers.get("removed", ()):
            if each["uuid"] is None:  # one record of several merged workers of a service
                sums[each["service"]] += each["spans"]
                added[each["service"]] += each["together"]
            else:
                removed[each["uuid"]] += each["spans"]
        counts: Counter[str] = Counter()
        for each in bricks["bricks"]:
            counts[each["name"]] += each["count"]
        return cls(alone, removed, sums, added, counts)

    def spans_of(self, uuid: str) -> int:
        """Return the sum of the shown and the removed spans of one worker."""
        return self.workers.get(uuid, 0) + self.removed.get(uuid, 0)


def _spans(worker: Mapping[str, Any]) -> int:
    spans = worker["ledger"]["spans"]
    return int(spans["begun"] + spans["no_lane"])


def sum_of(bounds: Iterable[Bounds]) -> Bounds:
    total = _NOTHING
    for each in bounds:
        total = total.plus(each)
    return total


def judge(counted: Mapping[str, Counted], seen: Seen, shown: Mapping[str, int]) -> list[Check]:
    """Check brickd's numbers against the workers' counts.

    Args:
        counted: the counts of each worker, by uuid.
        seen: brickd's numbers.
        shown: the largest number that brickd has shown for each worker, including removed spans.
    """
    apart = {uuid for uuid in counted if uuid in seen.workers or uuid in seen.removed}
    wanted = {uuid: Bounds(max(each.spans.low, shown.get(uuid, 0)), each.spans.high) for uuid, each in counted.items()}
    groups: defaultdict[str, list[str]] = defaultdict(list)
    for uuid in counted.keys() - apart:
        groups[counted[uuid].service].append(uuid)
    sums = {service: sum_of(wanted[uuid] for uuid in groups[service]) for service in {*groups, *seen.sums}}
    members = {
        service: Bounds(sum(wanted[uuid].low > 0 for uuid in groups[service]), len(groups[service])) for service in sums
    }
    begun = {name: sum_of(each.bricks.get(name, _NOTHING) for each in counted.values()).high for name in seen.bricks}
    bricks = {name: Bounds(0, high) for name, high in begun.items()}
    strangers = (seen.workers.keys() | seen.removed.keys()) - counted.keys()

    def worker(uuid: str) -> str:
        return f"{counted[uuid].service}, process {counted[uuid].pid}, uuid {uuid}"

    return [
        _all_within("spans of each worker", {uuid: wanted[uuid] for uuid in apart}, seen.spans_of, worker),
        _all_within(
            "spans of workers not shown separately, by service", sums, lambda name: seen.sums.get(name, 0), str
        ),
        _all_within("workers not shown separately, by service", members, lambda name: seen.added.get(name, 0), str),
        _all_within("spans of each brick", bricks, lambda name: seen.bricks[name], str),
        equal("spans of workers that counted none", sum(map(seen.spans_of, strangers)), 0),
    ]


def _all_within(
    name: str, wanted: Mapping[str, Bounds], found: Callable[[str], int], called: Callable[[str], str]
) -> Check:
    """Return one check of many amounts. It names the amount that is furthest out of its bounds."""
    off = {key: far for key, bounds in wanted.items() if (far := bounds.off(found(key)))}
    if not off:
        return Check(name, f"{len(wanted):,} within", "all within", True)
    worst = max(off, key=lambda key: off[key])
    low, high = wanted[worst]
    seen = (
        f"{len(off):,} of {len(wanted):,} off, furthest {called(worst)}: {found(worst):,}, counted {low:,} to {high:,}"
    )
    return Check(name, seen, "all within", False, sum(off.values()))


def failures(checks: Sequence[Check]) -> list[str]:
    """Return the failed checks, one line each."""
    return [f"{check.name}: {check.seen}" for check in checks if not check.passed]
