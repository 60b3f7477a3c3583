"""Workers that are slower than they were before, although they do the same work.

Owns: the definition of a worker's past, and when the worker is slower. Must not know: how a slot is made, other causes
of slowness. Invariants: The past ends a minute ago, so no slot is compared with itself. The past of a named worker does
not change. The past is limited in the number of workers and in length.

The time of a slot is the mean self time of its usual calls. A worker's past in a brick consists of blocks, each
`slower_over` long, within the last hour. A block is represented by the median and the spread of its slots. The last six
slots are slower if all of this is true: their median exceeds the median of the blocks by `slower_percent` and by three
spreads; at most one slot is an exception; the cost is at least a thousandth of the time. The worker is not reported if

- its calls have more elements, because that is other work;
- no elements are recorded, and there is only one worker or more than half of the workers are slower at the same time,
  because that may be other work;
- the extra time was spent waiting for a processor, with equal processor time, because the host is busier.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from brickd.analysis.timing.alarms import Alarm
from brickd.analysis.timing.stats import SLOTS_MIN, median
from brickd.analysis.timing.worker_series import (
    COLLECTIVE,
    COST_MIN,
    ROWS_MAX,
    SAMPLES_MIN,
    Host,
    Key,
    SlotLook,
    SlotSide,
)
from brickd.base.thresholds import Thresholds
from brickd.base.units import duration, percent
from brickd.model.survey_snapshot import EVERY_NS, Snapshot
from brickd.model.worker_names import as_argument

_RECENT = 6  # the number of recent slots
_BLOCKS = 60 * 60 * 1_000_000_000
_PASTS_MAX = 4 * ROWS_MAX
_STAYS = 0.5  # a named worker stays named while it exceeds this fraction of each bound
_EXPLAINED = 0.5
_SPREADS = 3
_TO_SIGMA = 1.4826  # standard deviation / median absolute deviation


class _Calls(NamedTuple):
    """A worker's calls of a brick in one slot, or the medians of a block; in ns; nan if unknown.

    Attributes:
        log_ns: the logarithm of the self time of a usual call.
        rate: calls per nanosecond.
        ran, waited: how long all threads of the worker's process ran and waited for a processor, per call.
        slot: the index of the slot; -1 for a block.
        spread: the spread of `log_ns` in a block.
    """

    log_ns: float
    elements: float
    rate: float
    ran: float
    waited: float
    slot: int = -1
    spread: float = 0.0


@dataclass(slots=True)
class _Past:
    """The history of a worker in a brick: its last slots, the current block, and the complete blocks."""

    recent: deque[_Calls] = field(default_factory=lambda: deque(maxlen=_RECENT))
    block: list[_Calls] = field(default_factory=list)
    blocks: deque[_Calls] = field(default_factory=deque)

    def add(self, calls: _Calls, block_slots: int, *, named: bool) -> None:
        """Add a slot. A slot that is no longer recent becomes part of the past, unless the worker is named."""
        if len(self.recent) == _RECENT and not named:
            self.block.append(self.recent[0])
            if len(self.block) >= block_slots:
                self.blocks.append(_middle(self.block))
                self.block.clear()
                while len(self.blocks) > max(1, _BLOCKS // (block_slots * EVERY_NS)):
                    self.blocks.popleft()
        self.recent.append(calls)


class _Found(NamedTuple):
    """A worker that is slower in a brick; `certain`: whether an equal count of elements proves equal work."""

    worker: str
    brick: str
    now: _Calls
    before: _Calls
    cost: float
    certain: bool


class Slower:
    """Finds workers that are slower than before; `newest` returns the newest compared slot."""

    def __init__(self, newest: Callable[[], SlotLook | None]) -> None:
        self._newest = newest
        self._last: SlotLook | None = None
        self._number = 0
        self._pasts: dict[tuple[str, Key], _Past] = {}
        self._named: set[tuple[str, Key]] = set()
        self._alarms: list[Alarm] = []

    def look(self, snapshot: Snapshot, thresholds: Thresholds) -> list[Alarm]:
        """Return the alarms of the newest slot."""
        newest = self._newest()
        if newest is not None and newest is not self._last:
            self._last = newest
            self._number += 1
            self._alarms = self._slot(newest, thresholds)
        return self._alarms

    def _slot(self, look: SlotLook, thresholds: Thresholds) -> list[Alarm]:
        alive = {life.uuid for life in look.lives.values()}
        self._pasts = {id_: past for id_, past in self._pasts.items() if id_[0] in alive}
        named: set[tuple[str, Key]] = set()
        worst: dict[tuple[str, str], _Found] = {}
        for key, sides in look.bricks.items():
            if look.slot.categories.get(key, "").casefold() == COLLECTIVE:
                continue
            found = self._brick(look, key, sides, thresholds)
            unsure = 2 * len(found) > len(sides) or len(sides) < 2
            for each in found:
                if unsure and not each.certain:
                    continue
                named.add((look.lives[each.worker].uuid, key))
                of = key[0], each.worker
                worst[of] = max(worst.get(of, each), each, key=lambda one: one.cost)
        self._named = named
        past_ns = thresholds.ns("slower_over")
        return [_alarm(service, worst[service, worker], past_ns) for service, worker in sorted(worst)]

    def _brick(self, look: SlotLook, key: Key, sides: Mapping[str, SlotSide], thresholds: Thresholds) -> list[_Found]:
        block_slots = max(SLOTS_MIN, thresholds.ns("slower_over") // EVERY_NS)
        found = []
        for worker, side in sides.items():
            if worker not in look.lives or side.calls < SAMPLES_MIN or side.usual_sum_ns <= 0:
                continue
            id_ = look.lives[worker].uuid, key
            past = self._pasts.get(id_)
            if past is None:
                if len(self._pasts) >= _PASTS_MAX:
                    continue
                past = self._pasts[id_] = _Past()
            named = id_ in self._named
            calls = _calls(side, look.slot.length_ns, look.hosts.get(worker, Host()), self._number)
            past.add(calls, block_slots, named=named)
            recent = [each for each in past.recent if each.slot > self._number - _RECENT]
            if len(recent) < SLOTS_MIN or not past.blocks:
                continue
            least = (_STAYS if named else 1.0) * math.log1p(thresholds.slower_percent / 100)
            slower = _slower(worker, key[1], recent, past.blocks, least)
            if slower is not None:
                found.append(slower)
        return found


def _slower(worker: str, brick: str, recent: Sequence[_Calls], blocks: Sequence[_Calls], least: float) -> _Found | None:
    """Return the finding if the last slots are slower than the blocks, for equal work on a host that is no busier."""
    now, before = _middle(recent), _middle(blocks)
    excess = now.log_ns - before.log_ns
    if excess < max(least, _SPREADS * median([each.spread for each in blocks])):
        return None
    if sum(each.log_ns - before.log_ns > excess / 2 for each in recent) < len(recent) - 1:
        return None
    extra_ns = math.exp(before.log_ns) * math.expm1(min(excess, 100.0))
    # The cost cannot exceed the time that the worker spent in the brick.
    cost = min(now.rate * extra_ns, now.rate * math.exp(now.log_ns))
    if cost < COST_MIN:
        return None
    certain = now.elements > 0 and before.elements > 0
    if certain and math.log(now.elements / before.elements) >= _EXPLAINED * excess:
        return None
    if now.waited - before.waited >= _EXPLAINED * extra_ns and not now.ran - before.ran >= _EXPLAINED * extra_ns:
        return None
    return _Found(worker, brick, now, before, cost, certain)


def _calls(side: SlotSide, length_ns: int, host: Host, slot: int) -> _Calls:
    rate = side.calls / max(1, length_ns)
    ran, waited = (math.nan if part is None else part / rate for part in (host.ran, host.waited))
    return _Calls(math.log(side.usual_sum_ns / side.calls), side.elements / side.calls, rate, ran, waited, slot)


def _middle(of: Sequence[_Calls]) -> _Calls:
    """The medians of slots or of blocks, and the spread of their times."""
    log_ns = median([each.log_ns for each in of])
    spread = _TO_SIGMA * median([abs(each.log_ns - log_ns) for each in of])
    elements, rate = median([each.elements for each in of]), median([each.rate for each in of])
    ran, waited = _known([each.ran for each in of]), _known([each.waited for each in of])
    return _Calls(log_ns, elements, rate, ran, waited, spread=spread)


def _known(values: Sequence[float]) -> float:
    """The median of the values that are not nan; nan if there are none."""
    known = [value for value in values if not math.isnan(value)]
    return median(known) if known else math.nan


def _alarm(service: str, found: _Found, past_ns: int) -> Alarm:
    times = [duration(math.exp(each.log_ns)) for each in (found.now, found.before)]
    more = percent(100 * math.expm1(found.now.log_ns - found.before.log_ns))
    text = (
        f"{found.worker} is slower than before: {found.brick} takes {times[0]} (+{more}); it took {times[1]} for at"
        f" least {duration(past_ns)} before; the difference costs {duration(1e9 * found.cost)}/s"
    )
    command = f"brickd bricks --by worker --over 60s {as_argument(service)}"
    return Alarm("slower", service, (found.worker,), found.worker, text, command)
