"""The workers of a service compared in one brick: slot by slot, and over the last slots.

Owns: which bricks of a slot are compared, what makes a worker comparable there, which slots of a worker count, how far
it differs from the others. Must not know: which worker is named. Invariants: a load on all workers leaves no trace; a
worker with too little work is compared with none; a look has at most `ROWS_MAX` rows, and omitted bricks are counted;
the records of another process with the same name do not count for a worker.
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
_COMPUTES = 0.8  # the part of its recorded time that must be running or waiting for a processor
# A finding costs at least a thousandth of the wall time; a brick in which no worker spends that much has none.
COST_MIN = 0.001
# Comparing this many costs half a percent of a core.
ROWS_MAX = 4_096

# The worker that waits longest in a collective was there first: the others wait for the one that waits least.
COLLECTIVE = "collective"
# The user's categories for a brick whose time shows nothing about a worker: it waits for work, or is meant to differ.
UNJUDGED = ("wait", "idle")

Key = tuple[str, str]
Left = Literal["small", "unjudged", "bounded"]


class Life(NamedTuple):
    """The identity of a process: a restarted worker has the same name, but another uuid."""

    service: str
    uuid: str


class Host(NamedTuple):
    """The kernel's account of a worker in a slot.

    Attributes:
        threads: the number that have recorded anything.
        ran, waited: the time that its threads ran and waited for a processor, as parts of the slot; None: unknown.
        pid: None: unknown here.
        cpu: the only processor that it may use; None: it may use several, or it is unknown.
        throttled: how long its control group was throttled, as a part of the time; None: unknown.
    """

    threads: int = 1
    ran: float | None = None
    waited: float | None = None
    pid: int | None = None
    cpu: int | None = None
    throttled: float | None = None


class Beside(NamedTuple):
    """A worker's work in a brick, compared with the others.

    Attributes:
        apart: in a collective, how much less it waited, as a part of the time between two of its calls; else the
            logarithm of its self time per call over the median of all. None: too few calls, or too few workers.
        usual_ns: the mean self time of its usual calls; None: all calls count.
    """

    apart: float | None
    calls: int
    self_ns: float
    elements: int
    usual_ns: float | None = None

    @property
    def usual_sum_ns(self) -> float:
        """The self time of all calls, if each took as long as the usual ones."""
        return self.self_ns if self.usual_ns is None else self.calls * self.usual_ns


@dataclass(frozen=True, slots=True)
class SlotLook:
    """A compared slot.

    Attributes:
        slot: without its bricks and bounds.
        lives: the live workers at its end, by name.
        bricks: by service and brick, each worker's part.
        hosts: the kernel's account of them, if known.
        left: why a brick was omitted. small: too little time to matter, or beyond the limit. unjudged: by its category,
            its time shows nothing about a worker. bounded: it has only bounds.
    """

    slot: Slot
    lives: Mapping[str, Life]
    bricks: Mapping[Key, Mapping[str, Beside]]
    left: Mapping[Key, Left]
    hosts: Mapping[str, Host] = field(default_factory=dict)
    processor: Mapping[str, float] = field(default_factory=dict)


_NO_HOSTS: Mapping[str, Host] = MappingProxyType({})


def look(slot: Slot, lives: Mapping[str, Life], hosts: Mapping[str, Host] = _NO_HOSTS) -> SlotLook:
    """Compare the workers in each brick of a slot."""
    least_ns, room = COST_MIN * slot.length_ns, ROWS_MAX
    bricks: dict[Key, Mapping[str, Beside]] = {}
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
            each.worker: Beside(apart.get(each.worker), each.count, each.self_ns, each.elements, each.usual_ns)
            for each in shares
        }
    return SlotLook(replace(slot, bricks={}, bounded=()), lives, bricks, left, hosts, _processor(slot, hosts))


def _processor(slot: Slot, hosts: Mapping[str, Host]) -> dict[str, float]:
    """Processor time per work, for services whose workers only compute; see `processor_time`."""
    found: dict[str, float] = {}
    for service in sorted({service for service, _ in slot.bricks}):
        keys = [key for key in slot.bricks if key[0] == service]
        if any(slot.categories.get(key, "").casefold() == COLLECTIVE for key in keys):
            continue  # a worker that waits for the others may run meanwhile
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
    """How long a worker ran, if it only runs or waits for a processor when it records; else 0."""
    if host.ran is None or host.waited is None or (host.ran + host.waited) * length_ns < _COMPUTES * recorded_ns:
        return 0.0
    return host.ran * length_ns


def _times(shares: Sequence[Share]) -> dict[str, float]:
    """The distance of each worker by its times."""
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
    # Differences, not ratios: they add up to the time of a step, and a late worker waits nearly nothing.
    return {each.worker: (middle - each.self_ns / each.count) * each.count / length_ns for each in enough}


class Stretch:
    """The slots that are judged together.

    Attributes:
        looks: the oldest first.
        workers: the live ones, by service.
        left: by service and reason, the number of bricks omitted in all slots.
    """

    def __init__(self, looks: Sequence[SlotLook]) -> None:
        self.looks = looks
        # The last slot decides whether a brick is judged by its category; it may be small in one slot and not in
        # another.
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
        """The bricks of a service with any work."""
        return self._keys.get(service, [])

    def sides(self, key: Key) -> dict[str, list[Beside | None]]:
        """The work of each live worker in a brick, slot by slot."""
        found: dict[str, list[Beside | None]] = {}
        for slot, look in enumerate(self.looks):
            for worker, beside in look.bricks.get(key, {}).items():
                if slot >= self._begins.get(worker, len(self.looks)):
                    found.setdefault(worker, [None] * len(self.looks))[slot] = beside
        return found

    def hosts(self, worker: str) -> list[Host]:
        """The kernel's account of a worker in each slot."""
        begin, none = self._begins[worker], Host()
        return [look.hosts.get(worker, none) if slot >= begin else none for slot, look in enumerate(self.looks)]

    def processor(self, worker: str) -> list[float | None]:
        """The processor time for its work in each slot, over the median; None: unknown."""
        begin = self._begins[worker]
        return [look.processor.get(worker) if slot >= begin else None for slot, look in enumerate(self.looks)]

    def category(self, key: Key) -> str:
        """The category that was declared last."""
        declared = (look.slot.categories[key] for look in reversed(self.looks) if key in look.slot.categories)
        return next(declared, "other")

    def lived_ns(self, worker: str) -> int:
        """The length of the slots that count for a worker."""
        return sum(look.slot.length_ns for look in self.looks[self._begins[worker] :])
