"""The critical path: the longest chain of work that had to run one after another.

Owns: which pieces of work follow each other, which may run in parallel, the longest chain, and the slack of each piece.
Must not know: bricks, paths, screens. Invariants: the time of a piece is counted once, however deep the piece is. The
times of the pieces on the path add up to the length of the path. The order in which pieces are given matters only if
several chains are equally long. Cycles are reported. Pieces may be nested to any depth, and chains may have any length.

Pieces are nested like spans. Within a piece, a thread does the piece's own work and the pieces directly inside it one
after another. There are two exceptions. Device work runs in parallel to the thread, one piece after another. And if
some of the pieces need results of others, only this decides their order: two of them that do not depend on each other
could run in parallel.

If pieces need each other in a cycle, they cannot be ordered. Then they count as one piece, which takes as long as all
of them together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


class Piece(NamedTuple):
    """A piece of work.

    Attributes:
        parent: the index of the piece that contains this piece; a parent precedes its children in the sequence.
        own_ns: the time of the piece without the time of the pieces inside it.
        aside: whether a device ran the piece, in parallel to the piece that contains it.
        needs: the indexes of the pieces whose results this piece needs, anywhere in the tree.
    """

    parent: int | None
    own_ns: float
    aside: bool = False
    needs: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Critical:
    """The longest chain, and the slack of the other pieces.

    Attributes:
        path: the pieces of the longest chain, in an order in which they could have run. Their own times add up to the
            length of the chain. A piece comes before the pieces inside it.
        slack_ns: how much longer each piece may take before the longest chain grows.
        cycles: pieces that need each other in a cycle, directly or through the pieces inside them.
    """

    length_ns: float = 0.0
    path: list[int] = field(default_factory=list)
    slack_ns: list[float] = field(default_factory=list)
    cycles: list[list[int]] = field(default_factory=list)


_TOP = -1  # the number of the level that contains all pieces


@dataclass(slots=True)
class _Level:
    """The pieces directly inside one piece, and their total length.

    Attributes:
        length_ns: the length, including the own time of the containing piece.
        own_first: whether the containing piece's own time is part of the longest chain.
        chain: the pieces of this level on the longest chain, in order.
        slack_ns: how much longer each piece of this level may take before the level takes longer; `_TOP` is the key of
            the containing piece's own time.
    """

    length_ns: float
    own_first: bool
    chain: list[int]
    slack_ns: dict[int, float]


def critical(pieces: Sequence[Piece]) -> Critical:
    """Return the longest chain of these pieces, and the slack of each.

    >>> critical([Piece(None, 5.0), Piece(0, 20.0), Piece(0, 30.0, aside=True)])
    Critical(length_ns=30.0, path=[2], slack_ns=[5.0, 5.0, 0.0], cycles=[])
    """
    inside: dict[int, list[int]] = defaultdict(list)
    for number, piece in enumerate(pieces):
        inside[_TOP if piece.parent is None else piece.parent].append(number)
    needs = _lifted(pieces)
    lengths = [0.0] * len(pieces)
    levels: dict[int, _Level] = {}
    cycles: list[list[int]] = []
    # A piece comes after its container in the sequence, so this backward loop visits a piece before its container.
    for number in range(len(pieces) - 1, _TOP - 1, -1):
        own_ns = pieces[number].own_ns if number != _TOP else 0.0
        level, circles = _level(own_ns, inside[number], pieces, lengths, needs)
        levels[number] = level
        cycles += circles
        if number != _TOP:
            lengths[number] = level.length_ns
    return Critical(levels[_TOP].length_ns, _path(levels), _slack(pieces, levels), sorted(cycles))


def _lifted(pieces: Sequence[Piece]) -> dict[int, set[int]]:
    """Return the siblings that each piece waits for.

    If one piece needs another, the sibling that contains the first piece waits for the sibling that contains the
    second.
    """
    around = _Around(pieces)
    lifted: dict[int, set[int]] = defaultdict(set)
    for number, piece in enumerate(pieces):
        for needed in piece.needs:
            one, other = around.beside(number, needed)
            # A piece cannot wait for a piece that contains it, or for a piece inside it.
            if one != other or number == needed:
                lifted[one].add(other)
    return lifted


class _Around:
    """The ancestors of each piece, with skip links, over which a common ancestor is found in a few steps.

    In the lists of this class, the index of each piece is larger by 1 than elsewhere, because index 0 is a root that
    contains all pieces.
    """

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self._above, self._far, self._depths = [0], [0], [0]
        for piece in pieces:
            above = 0 if piece.parent is None else piece.parent + 1
            far = self._far[above]
            # If the next two links are equally long, this link covers both; otherwise it leads to the parent.
            again = self._depths[above] - self._depths[far] == self._depths[far] - self._depths[self._far[far]]
            self._above.append(above)
            self._far.append(self._far[far] if again else above)
            self._depths.append(self._depths[above] + 1)

    def beside(self, number: int, needed: int) -> tuple[int, int]:
        """Return the two siblings that contain the two pieces. They are equal if one piece contains the other."""
        one, other = number + 1, needed + 1
        depth = min(self._depths[one], self._depths[other])
        one, other = self._up(one, depth), self._up(other, depth)
        while self._above[one] != self._above[other]:
            step = self._far if self._far[one] != self._far[other] else self._above
            one, other = step[one], step[other]
        return one - 1, other - 1

    def _up(self, number: int, depth: int) -> int:
        while self._depths[number] > depth:
            far = self._far[number]
            number = far if self._depths[far] >= depth else self._above[number]
        return number


def _level(
    own_ns: float, here: list[int], pieces: Sequence[Piece], lengths: Sequence[float], needs: Mapping[int, set[int]]
) -> tuple[_Level, list[list[int]]]:
    within = set(here)
    edges = {number: sorted(needs[number] & within) for number in here if number in needs}
    bound = {each for number, needed in edges.items() if needed for each in (number, *needed)}
    waits, circles = _condensed([number for number in here if number in bound], edges)
    free = [number for number in here if number not in bound and not pieces[number].aside]
    aside = [number for number in here if number not in bound and pieces[number].aside]
    plan = _planned(waits, lengths)
    # The sum of floats depends on the order in which they are added. `_sum` sorts them first, so that the order of the
    # pieces has no effect.
    host_ns = _sum([own_ns, *(lengths[number] for number in free)]) + plan.length_ns
    aside_ns = _sum(lengths[number] for number in aside)
    length_ns = max(host_ns, aside_ns)
    slack = dict.fromkeys((_TOP, *free), length_ns - host_ns)
    slack |= dict.fromkeys(aside, length_ns - aside_ns)
    slack |= {number: length_ns - host_ns + by for number, by in plan.slack_ns.items()}
    own_first = host_ns >= aside_ns
    return _Level(length_ns, own_first, free + plan.chain if own_first else aside, slack), circles


def _sum(times: Iterable[float]) -> float:
    return sum(sorted(times, reverse=True))


class _Plan(NamedTuple):
    """The plan of pieces that wait for others: the total length, the longest chain, and the slack of each piece."""

    length_ns: float
    chain: list[int]
    slack_ns: dict[int, float]


def _planned(waits: Sequence[tuple[list[int], set[int]]], lengths: Sequence[float]) -> _Plan:
    """Plan groups of pieces. Each entry has a group, and the positions of the earlier groups that it waits for."""
    took = [_sum(lengths[number] for number in group) for group, _ in waits]
    ends: list[float] = []
    last: list[int | None] = []
    for (_, before), took_ns in zip(waits, took, strict=True):
        latest = max(sorted(before), key=lambda place: ends[place], default=None)
        ends.append(took_ns + (0.0 if latest is None else ends[latest]))
        last.append(latest)
    # The time from the end of each group to the end of all groups.
    after = [0.0] * len(waits)
    for place in reversed(range(len(waits))):
        for earlier in waits[place][1]:
            after[earlier] = max(after[earlier], took[place] + after[place])
    length_ns = max(ends, default=0.0)
    slack = {
        number: max(0.0, length_ns - (ends[place] + after[place]))
        for place, (group, _) in enumerate(waits)
        for number in group
    }
    chain: list[int] = []
    at = next((place for place, end in enumerate(ends) if end == length_ns), None)
    while at is not None:
        chain += reversed(waits[at][0])
        at = last[at]
    return _Plan(length_ns, chain[::-1], slack)


def _condensed(
    here: Sequence[int], edges: Mapping[int, Sequence[int]]
) -> tuple[list[tuple[list[int], set[int]]], list[list[int]]]:
    """Return Tarjan's strongly connected components, each after those that it needs. Also return the cycles.

    The function does not use recursion, because a chain may contain all pieces.
    """
    order: dict[int, int] = {}
    low: dict[int, int] = {}
    group_of: dict[int, int] = {}
    groups: list[list[int]] = []
    stack: list[int] = []
    places: dict[int, int] = {}  # for each piece, its position on the stack
    for root in here:
        if root in order:
            continue
        to_visit = [(root, 0)]
        while to_visit:
            number, at = to_visit.pop()
            if at == 0:
                order[number] = low[number] = len(order)
                places[number] = len(stack)
                stack.append(number)
            needed = edges.get(number, ())
            while at < len(needed) and needed[at] in order:
                if needed[at] not in group_of:
                    low[number] = min(low[number], low[needed[at]])
                at += 1
            if at < len(needed):
                to_visit += [(number, at + 1), (needed[at], 0)]
                continue
            if low[number] == order[number]:
                members = stack[places[number] :]
                del stack[places[number] :]
                group_of |= dict.fromkeys(members, len(groups))
                groups.append(sorted(members))
            if to_visit:
                above = to_visit[-1][0]
                low[above] = min(low[above], low[number])
    waits = [
        (group, {group_of[each] for number in group for each in edges.get(number, ())} - {place})
        for place, group in enumerate(groups)
    ]
    circles = [group for group in groups if len(group) > 1 or group[0] in edges.get(group[0], ())]
    return waits, circles


def _path(levels: Mapping[int, _Level]) -> list[int]:
    path: list[int] = []
    to_visit = [_TOP]
    while to_visit:
        number = to_visit.pop()
        level = levels[number]
        if number != _TOP and level.own_first:
            path.append(number)
        to_visit += reversed(level.chain)
    return path


def _slack(pieces: Sequence[Piece], levels: Mapping[int, _Level]) -> list[float]:
    """Return the slack of each piece: its slack among its siblings, plus the slack of its containing piece."""
    around: list[float] = []
    for number, piece in enumerate(pieces):
        parent = _TOP if piece.parent is None else piece.parent
        beside = levels[parent].slack_ns[number]
        around.append(beside + (0.0 if parent == _TOP else around[parent]))
    return [slack_ns + levels[number].slack_ns[_TOP] for number, slack_ns in enumerate(around)]
