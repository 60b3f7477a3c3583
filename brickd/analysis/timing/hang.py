"""Hangs: compares two readings (looks) of the same workers, taken one after the other, and finds the outliers.

Owns: when a lane is stuck, which workers are outliers. Must not know: how the looks were taken, screens. Invariants: A
lane that recorded anything between the looks is not stuck. No worker is named if all workers are in the same state, or
if there are fewer than three workers. If all workers wait in one place, a worker that is also stuck in another place is
still found. The order of workers changes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from brickd.model.workers import Worker
from brickd.shm.open_spans import Open, youngest
from brickd.shm.segment_copy import Reading

State = Literal["stuck", "moving", "idle", "ended", "died"]
Kind = Literal["most_wait", "some_stuck", "all_wait", "none_stuck", "no_majority", "too_few"]

Age = int | None  # in nanoseconds; None if unknown

_FEWEST = 3


class LanePosition(NamedTuple):
    """The position of a lane, which is compared between workers.

    It consists of the innermost spans only, because some workers may have an outer wrapper that others do not have.

    Attributes:
        layer: the layer of the brick; None outside of layers.
        within: the brick directly around this one.
    """

    brick: str
    layer: int | None
    within: str | None


class LaneLook(NamedTuple):
    """One lane at one moment.

    Attributes:
        thread: the thread that records in the lane; 0 if there is none.
        activity: counters; when a span begins or ends, at least one of them changes.
        spans: the number of open spans.
        youngest: the open span that began last.
    """

    thread: int
    activity: tuple[int, ...]
    spans: int
    youngest: Open | None


Looks = Mapping[int, LaneLook]


class ComparedLane(NamedTuple):
    """One lane in two looks: the later look, and the state of the lane."""

    number: int
    look: LaneLook
    state: State


@dataclass(frozen=True, slots=True)
class Watched:
    """One worker in two looks; `ended`: whether it ended cleanly, without being killed."""

    name: str
    service: str
    alive: bool
    lanes: tuple[ComparedLane, ...]
    ended: bool = False

    @property
    def moves(self) -> bool:
        """Whether one of the worker's lanes moves."""
        return any(lane.state == "moving" for lane in self.lanes)

    @property
    def stuck(self) -> dict[LanePosition, Age]:
        """Return the places where the worker's lanes are stuck, each with the age of the oldest span there."""
        found: dict[LanePosition, Age] = {}
        for lane in self.lanes:
            if lane.state == "stuck" and lane.look.youngest is not None:
                span = lane.look.youngest
                place = LanePosition(span.brick, span.layer, span.path[-2] if len(span.path) > 1 else None)
                found[place] = max(found.get(place, span.since_ns), span.since_ns, key=_length)
        return found

    @property
    def state(self) -> State:
        """Return the state of the worker. A worker is "moving" if one of its lanes moves."""
        if not self.alive:
            return "ended" if self.ended else "died"
        return "moving" if self.moves else "stuck" if self.stuck else "idle"


class HangOutlier(NamedTuple):
    """An outlier; `place` is where it is stuck, None if it is not stuck."""

    worker: str
    state: State
    place: LanePosition | None
    since_ns: Age


@dataclass(frozen=True, slots=True)
class HangVerdict:
    """The verdict on the workers of one service.

    Attributes:
        kind: `most_wait`: more than half of the workers are stuck in `place`, and the outliers are not. `some_stuck`:
            most workers move or are idle, and the outliers are stuck elsewhere. `all_wait`: all live workers are stuck
            in `place`. The other kinds mean what their names say.
        place: the place where most or all workers wait, or the place of the outlier that has been stuck longest.
        since_ns: the shortest time for which any of these workers has been there.
        outliers: the outliers, the longest stuck first.
        stuck: for each place, the number of stuck workers and their shortest time; the place with most workers first.
        states: the number of workers in each state, without the outliers.
    """

    kind: Kind
    place: LanePosition | None
    since_ns: Age
    outliers: tuple[HangOutlier, ...]
    stuck: dict[LanePosition, tuple[int, Age]]
    states: Counter[State]

    @property
    def workers(self) -> int:
        """The number of all workers."""
        return self.states.total() + len(self.outliers)


def watched(worker: Worker, before: Reading | None, longer_ns: float) -> Watched:
    """Compare a worker with its earlier reading; a span that is younger than `longer_ns` is not stuck."""
    alive, earlier = worker.reading.alive, _looks(before) if before is not None else {}
    ended = worker.reading.ended
    lanes = compared(earlier, _looks(worker.reading), alive=alive, ended=ended, longer_ns=longer_ns)
    return Watched(worker.name, worker.service, alive, lanes, ended)


def _looks(reading: Reading) -> Looks:
    return {
        number: LaneLook(
            lane["thread"],
            (lane["begun"], lane["summarized"], lane["open"], lane["current"]),
            lane["open"],
            youngest(reading, lane),
        )
        for number, lane, _ in reading.lanes
    }


def compared(
    before: Looks, after: Looks, *, alive: bool, longer_ns: float, ended: bool = False
) -> tuple[ComparedLane, ...]:
    """Return the state of each lane; `alive` and `ended` are about the worker at the later look."""
    gone: State = "ended" if ended else "died"
    return tuple(
        ComparedLane(number, look, _state(before.get(number), look, longer_ns) if alive else gone)
        for number, look in after.items()
    )


def _state(before: LaneLook | None, after: LaneLook, longer_ns: float) -> State:
    if before is None or before.activity != after.activity:
        return "moving"
    if after.youngest is None:
        return "idle"
    since_ns = after.youngest.since_ns
    return "stuck" if since_ns is None or since_ns >= longer_ns else "moving"


def judge(workers: Sequence[Watched]) -> HangVerdict:
    """Find the outliers among the workers of one service."""
    stuck = _places(workers)

    def verdict(kind: Kind, place: LanePosition | None = None, outliers: Sequence[HangOutlier] = ()) -> HangVerdict:
        since_ns = None if place is None else stuck[place][1]
        apart = {each.worker for each in outliers}
        states = Counter(worker.state for worker in workers if worker.name not in apart)
        return HangVerdict(kind, place, since_ns, tuple(outliers), stuck, states)

    if len(workers) < _FEWEST:
        return verdict("too_few")
    living = [worker for worker in workers if worker.alive]
    everywhere = [place for place in stuck if stuck[place][0] == len(living)]
    elsewhere = {place: each for place, each in stuck.items() if place not in everywhere}
    # If all live workers wait in a place, this is normal as long as any of them has another lane that moves. In this
    # case, a dead worker is not an outlier.
    candidates = elsewhere if any(worker.moves for worker in living) else stuck
    for place, (inside, _) in candidates.items():
        if len(workers) < 2 * inside < 2 * len(workers):
            return verdict(
                "most_wait", place, _outliers((each for each in workers if place not in each.stuck), elsewhere)
            )
    rare = {place: each for place, each in stuck.items() if 2 * each[0] < len(workers)}
    apart = [worker for worker in workers if rare.keys() & worker.stuck.keys()]
    others = [worker for worker in workers if not rare.keys() & worker.stuck.keys()]
    if apart and 2 * sum(worker.state in ("moving", "idle") for worker in others) > len(workers):
        outliers = _outliers(apart, rare)
        return verdict("some_stuck", outliers[0].place, outliers)
    if everywhere:
        return verdict("all_wait", everywhere[0])
    return verdict("no_majority" if stuck else "none_stuck")


def _places(workers: Iterable[Watched]) -> dict[LanePosition, tuple[int, Age]]:
    """For each place, count the stuck workers and find their shortest time. Places with more workers come first."""
    found: dict[LanePosition, list[Age]] = {}
    for worker in workers:
        for place, since_ns in worker.stuck.items():
            found.setdefault(place, []).append(since_ns)
    places = {place: (len(ages), min(ages, key=_length)) for place, ages in found.items()}
    return dict(sorted(places.items(), key=lambda item: (-item[1][0], _length(item[1][1]), _order(item[0]))))


def _outliers(workers: Iterable[Watched], places: Mapping[LanePosition, tuple[int, Age]]) -> list[HangOutlier]:
    """Describe outliers, the longest stuck first. A stuck worker shows its rarest place, others show their state."""
    outliers = []
    for worker in workers:
        mine = [place for place in worker.stuck if place in places]
        if not mine and worker.state == "stuck":
            mine = list(worker.stuck)
        if not mine:
            outliers.append(HangOutlier(worker.name, worker.state, None, None))
            continue
        ranks = {(places.get(each, (0, 0))[0], -_length(worker.stuck[each]), _order(each)): each for each in mine}
        place = ranks[min(ranks)]
        outliers.append(HangOutlier(worker.name, "stuck", place, worker.stuck[place]))
    return sorted(outliers, key=lambda each: (-_length(each.since_ns), len(each.worker), each.worker))


def _length(age: Age) -> int:
    """Return a sort key for an age. An unknown age counts as the shortest, so that no time is overstated."""
    return -1 if age is None else age


def _order(place: LanePosition) -> tuple[str, int, str]:
    """Return a sort key for places. The places themselves cannot be sorted, because a layer may be None."""
    return place.brick, -1 if place.layer is None else place.layer, place.within or ""
