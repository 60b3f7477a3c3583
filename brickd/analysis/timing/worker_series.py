"""The workers of a service compared in one brick: slot by slot, and over the last slots.

Owns: which bricks of a slot are looked at, what makes a worker comparable there, which slots of a worker count, how far
it differs from the others. Must not know: which worker is named for that. Invariants: a load that all workers share
leaves no trace; a worker that did too little is compared with none; a look has at most `ROWS_MAX` rows, and what it
leaves out is counted; what another process did under the same name does not count for a worker.
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
_COMPUTES = 0.8  # so much of its recorded time is running or waiting for a processor
# What is told costs a thousandth of the time on the wall. A brick in which nobody spent as much cannot.
COST_MIN = 0.001
# So many cost half a percent of a core, however many there are.
ROWS_MAX = 4_096

# Who waits longest in a collective was there first: the others wait for the one that waits least.
COLLECTIVE = "collective"
# The user's own word for a brick whose time says nothing of its worker: it waits for work, or is meant to differ.
UNJUDGED = ("wait", "idle")

Key = tuple[str, str]
Left = Literal["small", "unjudged", "bounded"]


class Life(NamedTuple):
    """A process: a worker that is started again has the same name, and is another one."""

    service: str
    uuid: str


class Host(NamedTuple):
    """What the kernel says of a worker in a slot.

    Attributes:
        threads: that have recorded anything.
        ran, waited: how long its threads ran and waited for a processor, as parts of the time; None: not known.
        pid: None: not known here.
        cpu: the only processor that it may use; None: it may use several, or it is not known.
        throttled: how long its control group was throttled, as a part of the time; None: not known.
    """

    threads: int = 1
    ran: float | None = None
    waited: float | None = None
    pid: int | None = None
    cpu: int | None = None
    throttled: float | None = None


class Beside(NamedTuple):
    """What a worker did in a brick, and how that is beside the others.

    Attributes:
        apart: in a collective, how much less it waited, as a part of the time between two of its calls; else the
            logarithm of its self time of a call over the median of all. None: it did too little, or too few did enough.
        usual_ns: the mean self time of its usual calls; None: that of all calls counts.
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
    """A slot, compared.

    Attributes:
        slot: without its bricks, and without those that are only bounded.
        lives: the live workers at its end, by name.
        bricks: by service and brick, each worker's part.
        hosts: what the kernel says of them, as far as it was asked.
        left: why a brick was left out. small: too small to matter, or one too many. unjudged: by its category, its time
            says nothing of its worker. bounded: nothing of it was measured.
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
    """Of each service whose workers all do nothing but run and wait for a processor; see `processor_time`."""
    found: dict[str, float] = {}
    for service in sorted({service for service, _ in slot.bricks}):
        keys = [key for key in slot.bricks if key[0] == service]
        if any(slot.categories.get(key, "").casefold() == COLLECTIVE for key in keys):
            continue  # whoever waits for the others may run meanwhile
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
    """How long a worker ran, if it only runs or waits for a processor in its recorded time; 0: not known."""
    if host.ran is None or host.waited is None or (host.ran + host.waited) * length_ns < _COMPUTES * recorded_ns:
        return 0.0
    return host.ran * length_ns


def _times(shares: Sequence[Share]) -> dict[str, float]:
    """How far each is apart by its times."""
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
    # In differences: it is those that add up to the time of a step, and whoever is late waits nearly nothing.
    return {each.worker: (middle - each.self_ns / each.count) * each.count / length_ns for each in enough}


class Stretch:
    """The slots that are judged together.

    Attributes:
        looks: the oldest first.
        workers: those that live now, by service.
        left: by service and reason, how many bricks were left out in all slots.
    """

    def __init__(self, looks: Sequence[SlotLook]) -> None:
        self.looks = looks
        # Small it may be in one slot and not in another; whether it is judged at all is as it was said last.
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
        """What the kernel says of a worker in each slot."""
        begin, none = self._begins[worker], Host()
        return [look.hosts.get(worker, none) if slot >= begin else none for slot, look in enumerate(self.looks)]

    def processor(self, worker: str) -> list[float | None]:
        """How much processor time it takes for its work in each slot, over the median; None: not known."""
        begin = self._begins[worker]
        return [look.processor.get(worker) if slot >= begin else None for slot, look in enumerate(self.looks)]

    def category(self, key: Key) -> str:
        """The category that was declared last."""
        declared = (look.slot.categories[key] for look in reversed(self.looks) if key in look.slot.categories)
        return next(declared, "other")

    def lived_ns(self, worker: str) -> int:
        """The length of the slots that count for a worker."""
        return sum(look.slot.length_ns for look in self.looks[self._begins[worker] :])
