"""A verdict of `hang` in one sentence.

Owns: its words. Must not know: how a verdict comes about. Invariant: the sentence is raw; whoever prints it escapes it.
"""

from __future__ import annotations

from collections.abc import Sequence

from brickd.cli import units
from brickd.hang import Odd, State, Verdict

_NAMED = 3
_DOES: dict[State, tuple[str, str]] = {
    "moving": ("goes on", "go on"),
    "idle": ("is idle", "are idle"),
    "dead": ("is dead", "are dead"),
    "stuck": ("is stuck", "are stuck"),
}


def sentence(verdict: Verdict) -> str:
    """What is to be said of the workers of one service."""
    count, odd = verdict.workers, verdict.odd
    where = f"in {verdict.brick} for {units.duration(verdict.since_ns)}"
    match verdict.kind:
        case "most_wait":
            return f"{count - len(odd)} of {count} wait {where}; {_listed([_stands(each) for each in odd])}"
        case "some_stuck":
            others = "".join(f", {each}" for each in _states(verdict, "stuck", "idle", "dead"))
            return f"{_listed([_hangs(each) for each in odd])}; {verdict.states['moving']} others go on{others}"
        case "all_wait":
            elsewhere = " and go on in other threads" if verdict.states["moving"] else ""
            dead = "".join(f", {each}" for each in _states(verdict, "dead"))
            living = count - verdict.states["dead"]
            return f"all {living}{' that live' if dead else ''} wait {where}{elsewhere}{dead}: nobody stands apart"
        case "none_stuck":
            return f"nobody is stuck: {_listed(_states(verdict, 'moving', 'idle', 'dead'))}"
        case "no_majority":
            return f"no majority, nobody is named: {_listed(_everything(verdict))}"
        case "too_few":
            workers = f"{count} worker{' is' if count == 1 else 's are'}"
            return f"{workers} too few to compare: {_listed(_everything(verdict))}"


def _stands(odd: Odd) -> str:
    return f"{odd.worker} {_DOES[odd.state][0] if odd.brick is None else f'is in {odd.brick}'}"


def _hangs(odd: Odd) -> str:
    return f"{odd.worker} is stuck in {odd.brick} for {units.duration(odd.since_ns)}"


def _everything(verdict: Verdict) -> list[str]:
    waiting = [
        f"{inside} {'waits' if inside == 1 else 'wait'} in {brick} for {units.duration(since_ns)}"
        for brick, (inside, since_ns) in verdict.stuck.items()
    ]
    return waiting + _states(verdict, "moving", "idle", "dead")


def _states(verdict: Verdict, *states: State) -> list[str]:
    """How many of those who do not stand apart are in each of these states."""
    counts = [(verdict.states[state], _DOES[state]) for state in states]
    return [f"{count} {one if count == 1 else many}" for count, (one, many) in counts if count]


def _listed(said: Sequence[str]) -> str:
    more = [f"{len(said) - _NAMED} more"] if len(said) > _NAMED else []
    return ", ".join([*said[:_NAMED], *more])
