"""One slot of time with the workers of each service beside each other, brick by brick.

Owns: which bricks of a slot are looked at, what makes a worker comparable there, how far from the others it is. Must
not know: other slots, who is named. Invariants: a load that all have in common leaves no trace; whoever did too little
is beside nobody; a look has at most `ROWS_MAX` rows, and what it leaves out is counted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from brickd.shares import Share, Slot
from brickd.standing import ROWS_MIN, median

SAMPLES_MIN = 5
# What is told costs a thousandth of the time on the wall. A brick in which nobody spent as much cannot.
COST_MIN = 0.001
# So many cost half a percent of a core, however many there are.
ROWS_MAX = 4_096

# Who waits longest in a collective was there first: the others wait for the one that waits least.
COLLECTIVE = "collective"
# The user's own word for a brick whose time says nothing of its worker: it waits for work, or is meant to differ.
_UNJUDGED = ("wait", "idle")

Key = tuple[str, str]
Left = Literal["small", "unjudged", "bounded"]


class Life(NamedTuple):
    """A process: a worker that is started again has the same name, and is another one."""

    service: str
    uuid: str


class Beside(NamedTuple):
    """What a worker did in a brick, and how that is beside the others.

    Attributes:
        apart: in a collective, how much less it waited, as a part of the time between two of its calls; else the
            logarithm of its mean self time over the median of all. None: it did too little, or too few did enough.
        calls: how many.
        self_ns: in all of them.
        elements: in all of them.
    """

    apart: float | None
    calls: int
    self_ns: float
    elements: int


@dataclass(frozen=True, slots=True)
class Look:
    """A slot, looked at.

    Attributes:
        slot: without its bricks, and without those that are only bounded.
        lives: who lives at its end, by name.
        bricks: by service and brick, whose each is.
        left: why a brick was left out. small: too small to matter, or one too many. unjudged: as its category says, its
            time tells nothing of its worker. bounded: nothing of it was measured.
    """

    slot: Slot
    lives: Mapping[str, Life]
    bricks: Mapping[Key, Mapping[str, Beside]]
    left: Mapping[Key, Left]


def look(slot: Slot, lives: Mapping[str, Life]) -> Look:
    """Look at a slot.

    Args:
        slot: what every worker did.
        lives: as `Look` has it.
    """
    least_ns, room = COST_MIN * slot.length_ns, ROWS_MAX
    bricks: dict[Key, Mapping[str, Beside]] = {}
    left: dict[Key, Left] = dict.fromkeys(slot.bounded, "bounded")
    for key in sorted(slot.bricks, key=lambda key: (-sum(share.self_ns for share in slot.bricks[key]), key)):
        shares = slot.bricks[key]
        kind = slot.categories.get(key, "").casefold()
        if kind in _UNJUDGED:
            left[key] = "unjudged"
            continue
        if len(shares) > room or all(share.self_ns < least_ns for share in shares):
            left[key] = "small"
            continue
        room -= len(shares)
        apart = _waits(shares, slot.length_ns) if kind == COLLECTIVE else _times(shares)
        bricks[key] = {
            each.worker: Beside(apart.get(each.worker), each.count, each.self_ns, each.elements) for each in shares
        }
    return Look(replace(slot, bricks={}, bounded=()), lives, bricks, left)


def _times(shares: Sequence[Share]) -> dict[str, float]:
    """How each is apart in its mean self time."""
    means = {each.worker: each.self_ns / each.count for each in shares if each.count >= SAMPLES_MIN}
    means = {worker: mean for worker, mean in means.items() if mean > 0}
    if len(means) < ROWS_MIN:
        return {}
    middle = math.log(median(means.values()))
    return {worker: math.log(mean) - middle for worker, mean in means.items()}


def _waits(shares: Sequence[Share], length_ns: int) -> dict[str, float]:
    """How each is apart in its mean wait."""
    enough = [each for each in shares if each.count >= SAMPLES_MIN]
    if len(enough) < ROWS_MIN or length_ns <= 0:
        return {}
    middle = median([each.self_ns / each.count for each in enough])
    # In differences: it is those that add up to the time of a step, and whoever is late waits nearly nothing.
    return {each.worker: (middle - each.self_ns / each.count) * each.count / length_ns for each in enough}
