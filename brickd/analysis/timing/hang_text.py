"""The verdict of `hang` in one sentence.

Owns: the words of the sentence. Must not know: how a verdict is reached. Invariants: The sentence is not escaped, so
the caller escapes it. The name of a place is only as long as needed to distinguish the places in the sentence.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from brickd.analysis.timing.hang import Age, HangVerdict, LanePosition, State
from brickd.base import units

_NAMED = 3
_DOES: dict[State, tuple[str, str]] = {
    "moving": ("goes on", "go on"),
    "idle": ("is idle", "are idle"),
    "ended": ("ended", "ended"),
    "died": ("died", "died"),
    "stuck": ("is stuck", "are stuck"),
}


def sentence(verdict: HangVerdict) -> str:
    """Return the sentence for the verdict on the workers of one service."""
    count, outliers = verdict.workers, verdict.outliers
    everything = verdict.kind in ("no_majority", "too_few")
    places = _named(verdict.stuck if everything else [verdict.place, *(each.place for each in outliers)])
    where = f"in {places.get(verdict.place)}{_for(verdict.since_ns)}"
    match verdict.kind:
        case "most_wait":
            others = [
                _DOES[each.state][0] if each.place is None else f"is in {places[each.place]}" for each in outliers
            ]
            apart = _listed([f"{each.worker} {does}" for each, does in zip(outliers, others, strict=True)])
            return f"{count - len(outliers)} of {count} wait {where}; {apart}"
        case "some_stuck":
            (first, do), *rest = _counted(verdict, "moving", "idle", "stuck", "ended", "died")
            others = [f"{units.many(first, 'other')} {do}", *(f"{count} {do}" for count, do in rest)]
            apart = _listed([f"{e.worker} is stuck in {places[e.place]}{_for(e.since_ns)}" for e in outliers])
            return f"{apart}; {', '.join(others)}"
        case "all_wait":
            elsewhere = " and continue in other threads" if verdict.states["moving"] else ""
            gone = "".join(f", {each}" for each in _states(verdict, "ended", "died"))
            living = count - verdict.states["ended"] - verdict.states["died"]
            return f"all {living}{' live ones' if gone else ''} wait {where}{elsewhere}{gone}: no worker is different"
        case "none_stuck":
            return f"no worker is stuck: {_listed(_states(verdict, 'moving', 'idle', 'ended', 'died'))}"
        case "no_majority":
            return f"no majority, so no worker is named: {_listed(_everything(verdict, places))}"
        case "too_few":
            workers = units.many(count, "worker is", "workers are")
            return f"{workers} too few to compare: {_listed(_everything(verdict, places))}"


def _named(places: Iterable[LanePosition | None]) -> dict[LanePosition | None, str]:
    """Name each place by its brick; add the layer or the parent if the brick is at several places."""
    alike: dict[str, list[LanePosition]] = {}
    for place in places:
        if place is not None:
            alike.setdefault(place.brick, []).append(place)
    names: dict[LanePosition | None, str] = {}
    for brick, same in alike.items():
        layers, around = len({place.layer for place in same}) > 1, len({place.within for place in same}) > 1
        for place in same:
            layer = ["no layer" if place.layer is None else f"layer {place.layer}"] if layers else []
            within = ["outermost" if place.within is None else f"in {place.within}"] if around else []
            names[place] = f"{brick} ({', '.join(layer + within)})" if layer + within else brick
    return names


def _everything(verdict: HangVerdict, places: Mapping[LanePosition | None, str]) -> list[str]:
    waiting = [
        f"{inside} {'waits' if inside == 1 else 'wait'} in {places[place]}{_for(since_ns)}"
        for place, (inside, since_ns) in verdict.stuck.items()
    ]
    return waiting + _states(verdict, "moving", "idle", "ended", "died")


def _for(age: Age) -> str:
    return "" if age is None else f" for {units.duration(age)}"


def _states(verdict: HangVerdict, *states: State) -> list[str]:
    return [f"{count} {do}" for count, do in _counted(verdict, *states)]


def _counted(verdict: HangVerdict, *states: State) -> list[tuple[int, str]]:
    """Count the workers in each of these states, without the outliers; write each count with a verb."""
    counts = [(verdict.states[state], _DOES[state]) for state in states]
    return [(count, one if count == 1 else many) for count, (one, many) in counts if count]


def _listed(parts: Sequence[str]) -> str:
    more = [f"{len(parts) - _NAMED} more"] if len(parts) > _NAMED else []
    return ", ".join([*parts[:_NAMED], *more])
