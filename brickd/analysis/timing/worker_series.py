"""Compares the workers of a service in one brick: slot by slot, and over the last slots.

Owns: the choice of the bricks and workers that are compared in a slot, and of the slots that count for a worker; how
far a worker differs from the others. Must not know: which worker is named. Invariants: A load that slows all workers
equally changes nothing. A worker with too little work is not compared. A slot has at most `ROWS_MAX` rows, and omitted
bricks are counted. The slots of a worker do not include other processes that have the same name.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Literal, NamedTuple

from brickd.analysis.timing.stats import ROWS_MIN, median
from brickd.model.worker_totals import Share, Slot

SAMPLES_MIN = 5
# a worker only computes if it spends this fraction of its recorded time running or waiting for a processor
_COMPUTES = 0.8
# The least cost of a finding, as a fraction of the wall time. Bricks in which no worker spends that much are omitted.
COST_MIN = 0.001
# Comparing this many rows takes half a percent of a core.
ROWS_MAX = 4_096

# In a collective, the worker that arrives first waits longest; the worker that waits least delays the others.
COLLECTIVE = "collective"
# Categories of bricks whose time shows nothing about a worker, because they wait for work or are expected to differ.
UNJUDGED = ("wait", "idle")

Key = tuple[str, str]
Left = Literal["small", "unjudged", "bounded"]


class Life(NamedTuple):
    """The identity of a process. A restarted worker has the same name but another uuid."""

    service: str
    uuid: str


class Host(NamedTuple):
    """The kernel's accounting of a worker in a slot.

    Attributes:
        threads: the number of threads that have recorded anything.
        ran, waited: how long the worker's threads ran and waited for a processor, as fractions of the slot; None if
            unknown.
        pid: the worker's PID; None if this process does not know it.
        cpu: the only processor that the worker may use; None if it may use several, or if that is unknown.
        throttled: how long the worker's control group was throttled, as a fraction of the slot; None if unknown.
    """

    threads: int = 1
    ran: float | None = None
    waited: float | None = None
    pid: int | None = None
    cpu: int | None = None
    throttled: float | None = None


class SlotSide(NamedTuple):
    """A worker's work in a brick, compared with the other workers.

    Attributes:
        apart: in a collective, how much less the worker waited than the median, as a fraction of the time between two
            of its calls. In other bricks, the logarithm of its self time per call divided by the median of all workers.
            None if there are too few calls or workers.
        usual_ns: the mean self time of the worker's usual calls; None if all calls count.
    """

    apart: float | None
    calls: int
    self_ns: float
    elements: int
    usual_ns: float | None = None

    @property
    def usual_sum_ns(self) -> float:
        """Return the self time that all calls would have if each took the mean time of the usual calls."""
        return self.self_ns if self.usual_ns is None else self.calls * self.usual_ns


@dataclass(frozen=True, slots=True)
class SlotLook:
    """A compared slot.

    Attributes:
        slot: the slot, without its bricks.
        lives: the workers that were alive at the end of the slot, by name.
        bricks: by service and brick, the work of each worker.
        hosts: the kernel's accounting of the workers, if known.
        left: why each omitted brick was omitted. "small": the brick takes too little time to matter, or the limit of
            rows was reached. "unjudged": the brick is of a category whose times show nothing about a worker. "bounded":
            the times of the brick are only bounds.
    """

    slot: Slot
    lives: Mapping[str, Life]
    bricks: Mapping[Key, Mapping[str, SlotSide]]
    left: Mapping[Key, Left]
    hosts: Mapping[str, Host] = field(default_factory=dict)
    processor: Mapping[str, float] = field(default_factory=dict)


_NO_HOSTS: Mapping[str, Host] = MappingProxyType({})


def look(slot: Slot, lives: Mapping[str, Life], hosts: Mapping[str, Host] = _NO_HOSTS) -> SlotLook:
    """Compare the workers in each brick of a slot."""
    least_ns, room = COST_MIN * slot.length_ns, ROWS_MAX
    bricks: dict[Key, Mapping[str, SlotSide]] = {}
    left: dict[Key, Left] = dict.fromkeys(slot.bounded, "bounded")
    for key in sorted(slot.bricks, key=lambda key: (-sum(share.self_ns for share in slot.bricks[key]), key)):
        shares = slot.bricks[key]
        kind = slot.categories.get(key, "").casefold()
        if kind in UNJUDGED:
            left[key] = "unjudged"
            continue
        if len(shares) > room or all(share.self_ns < least_ns for share in shares):
            left[key] = "small"
            continue
        room -= len(shares)
        apart = _waits(shares, slot.length_ns) if kind == COLLECTIVE else _times(shares)
        bricks[key] = {
            each.worker: SlotSide(apart.get(each.worker), each.count, each.self_ns, each.elements, each.usual_ns)
            for each in shares
        }
    return SlotLook(replace(slot, bricks={}, bounded=()), lives, bricks, left, hosts, _processor(slot, hosts))


def _processor(slot: Slot, hosts: Mapping[str, Host]) -> dict[str, float]:
    """Return each worker's processor time per unit of work, as a logarithm relative to the median.

    Services whose workers do more than compute are left out; see `processor_time`.
    """
    found: dict[str, float] = {}
    for service in sorted({service for service, _ in slot.bricks}):
        keys = [key for key in slot.bricks if key[0] == service]
        if any(slot.categories.get(key, "").casefold() == COLLECTIVE for key in keys):
            continue  # in a collective, a worker may run while it waits
        recorded_ns: dict[str, float] = defaultdict(float)
        work_ns: dict[str, float] = defaultdict(float)
        for key in keys:
            shares = [share for share in slot.bricks[key] if share.count]
            usual_ns = median([share.call_ns for share in shares]) if shares else 0.0
            for share in shares:
                recorded_ns[share.worker] += share.self_ns
                work_ns[share.worker] += share.count * usual_ns
        ran_ns = {worker: _ran_ns(hosts.get(worker, Host()), of, slot.length_ns) for worker, of in recorded_ns.items()}
        if len(ran_ns) < ROWS_MIN or not all(each > 0 for each in ran_ns.values()):
            continue
        if not all(0 < each < math.inf for each in work_ns.values()):
            continue
        takes = {worker: math.log(of) - math.log(work_ns[worker]) for worker, of in ran_ns.items()}
        middle = median(takes.values())
        found |= {worker: each - middle for worker, each in takes.items()}
    return found


def _ran_ns(host: Host, recorded_ns: float, length_ns: int) -> float:
    """Return how long a worker ran. Return 0 if it does other things than run or wait for a processor."""
    if host.ran is None or host.waited is None or (host.ran + host.waited) * length_ns < _COMPUTES * recorded_ns:
        return 0.0
    return host.ran * length_ns


def _times(shares: Sequence[Share]) -> dict[str, float]:
    means = {each.worker: each.call_ns for each in shares if each.count >= SAMPLES_MIN and each.call_ns > 0}
    if len(means) < ROWS_MIN:
        return {}
    middle = math.log(median(means.values()))
    return {worker: math.log(mean) - middle for worker, mean in means.items()}


def _waits(shares: Sequence[Share], length_ns: int) -> dict[str, float]:
    enough = [each for each in shares if each.count >= SAMPLES_MIN]
    if len(enough) < ROWS_MIN or length_ns <= 0:
        return {}
    middle = median([each.self_ns / each.count for each in enough])
    # Differences are used instead of ratios, because differences add up to the time of a step, and because a late
    # worker waits nearly 0.
    return {each.worker: (middle - each.self_ns / each.count) * each.count / length_ns for each in enough}


class Stretch:
    """The slots that are judged together.

    Attributes:
        looks: the slots, the oldest first.
        workers: the live workers, by service.
        left: for each service and reason, the number of bricks that were omitted in every slot.
    """

    def __init__(self, looks: Sequence[SlotLook]) -> None:
        self.looks = looks
        # The category in the last slot decides whether a brick is judged. Some bricks are small in only some of the
        # slots.
        left = {key: look.left.get(key) for look in looks for key in (*look.left, *look.bricks)}
        seen = {key for look in looks for key in look.bricks if left[key] != "unjudged"}
        self._keys: dict[str, list[Key]] = {}
        for key in sorted(seen):
            self._keys.setdefault(key[0], []).append(key)
        self.left = Counter((key[0], why) for key, why in left.items() if key not in seen)
        self.workers: dict[str, list[str]] = {}
        self._begins: dict[str, int] = {}
        for worker, life in looks[-1].lives.items() if looks else ():
            self.workers.setdefault(life.service, []).append(worker)
            others = (slot for slot, look in enumerate(looks) if look.lives.get(worker) != life)
            self._begins[worker] = max(others, default=-1) + 1
        self.length_ns = sum(look.slot.length_ns for look in looks)

    def keys(self, service: str) -> list[Key]:
        """Return the bricks of a service that have work."""
        return self._keys.get(service, [])

    def sides(self, key: Key) -> dict[str, list[SlotSide | None]]:
        """Return the work of each live worker in a brick, slot by slot."""
        found: dict[str, list[SlotSide | None]] = {}
        for slot, look in enumerate(self.looks):
            for worker, side in look.bricks.get(key, {}).items():
                if slot >= self._begins.get(worker, len(self.looks)):
                    found.setdefault(worker, [None] * len(self.looks))[slot] = side
        return found

    def hosts(self, worker: str) -> list[Host]:
        """Return the kernel's accounting of a worker in each slot."""
        begin, none = self._begins[worker], Host()
        return [look.hosts.get(worker, none) if slot >= begin else none for slot, look in enumerate(self.looks)]

    def processor(self, worker: str) -> list[float | None]:
        """For each slot, return a worker's processor time per unit of work, as a logarithm relative to the median.

        None if unknown.
        """
        begin = self._begins[worker]
        return [look.processor.get(worker) if slot >= begin else None for slot, look in enumerate(self.looks)]

    def category(self, key: Key) -> str:
        """Return the category that the workers declared last."""
        declared = (look.slot.categories[key] for look in reversed(self.looks) if key in look.slot.categories)
        return next(declared, "other")

    def lived_ns(self, worker: str) -> int:
        """Return the total length of the slots that count for a worker."""
        return sum(look.slot.length_ns for look in self.looks[self._begins[worker] :])
