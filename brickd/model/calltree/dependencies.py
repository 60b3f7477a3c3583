"""Dependencies in the call tree: needs, critical path, slowest kernel, useless transfers.

Owns: which node a needed name means, how nodes become pieces of work. Must not know: paths, screens, what is shown.
Invariants: a name means the nearest node: a sibling of the node that needs it (of the same layer first), otherwise a
sibling of its parent, and so on, otherwise the first in the tree; the order of workers changes nothing; the time is
linear in the length of chains and the number of needs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from brickd.model.calltree.critical_path import Critical, Piece, critical
from brickd.model.calltree.node import TreeNode


@dataclass(frozen=True, slots=True)
class Need:
    """A needed name: the number of its node (None: none has it), and how often it was recorded."""

    name: str
    place: int | None
    count: int

    def document(self, shown: dict[int, int]) -> dict[str, Any]:
        """The JSON document; `shown`: the ids of the shown nodes, by number."""
        number = None if self.place is None else shown.get(self.place)
        return {"name": self.name, "id": number, "found": self.place is not None, "count": self.count}


class Graph:
    """The dependencies of nodes.

    `own_ns` of a node is its time without that of the nodes below it. Device work does not reduce it.
    """

    def __init__(self, order: Sequence[TreeNode]) -> None:
        self._order = order
        self._numbers = {id(place): number for number, place in enumerate(order)}
        self.needs = self._needs()
        pieces = self._pieces()
        self.own_ns = [piece.own_ns for piece in pieces]
        self.critical: Critical = critical(pieces)

    def number(self, place: TreeNode) -> int:
        """The node's number in the tree's order."""
        return self._numbers[id(place)]

    def _above(self, place: TreeNode) -> int:
        return -1 if place.above is None else self.number(place.above)

    def _needs(self) -> list[list[Need]]:
        # A level is the number of the nearest node above that is not a layer; -1: there is none.
        levels: list[int] = []  # of each node
        layers: list[int | None] = []  # of each node
        first: dict[str, int] = {}
        nearest: dict[tuple[int, str], int] = {}
        same_layer: dict[tuple[int, str, int | None], int] = {}
        names: dict[int, set[str]] = defaultdict(set)
        for number, place in enumerate(self._order):
            above = self._above(place)
            level = levels[above] if above >= 0 and self._order[above].kind == "layer" else above
            layer = place.layer if place.layer is not None or above < 0 else layers[above]
            levels.append(level)
            layers.append(layer)
            if place.kind != "layer":
                first.setdefault(place.name, number)
                nearest.setdefault((level, place.name), number)
                same_layer.setdefault((level, place.name, layer), number)
                names[level].add(place.name)
        # During the walk: the levels around the current node that have a node of this name.
        around: dict[str, list[int]] = defaultdict(list)
        inside: list[tuple[int, int]] = []  # these levels, and the end of each

        def enter(level: int, end: int) -> None:
            inside.append((level, end))
            for name in names[level]:
                around[name].append(level)

        found: list[list[Need]] = []
        enter(-1, len(self._order))
        for number, place in enumerate(self._order):
            while inside[-1][1] <= number:
                for name in names[inside.pop()[0]]:
                    around[name].pop()
            here: list[Need] = []
            for name, count in sorted(place.needs.items()):
                needed = first.get(name)
                if around[name]:
                    level = around[name][-1]
                    needed = same_layer.get((level, name, layers[number]), nearest[level, name])
                here.append(Need(name, needed, count))
            found.append(here)
            if place.kind != "layer":
                enter(number, number + place.whole.nodes)
        return found

    def _pieces(self) -> list[Piece]:
        """Make pieces; device work does not reduce the own time of the brick that launched it."""
        pieces = []
        for place, needs in zip(self._order, self.needs, strict=True):
            above, own_ns = self._above(place), 0.0
            if place.given:
                own_ns = place.total_ns
            elif place.row is not None:
                own_ns = max(place.self_ns, place.host_ns - sum(each.host_ns for each in place.below))
            needed = tuple(sorted({need.place for need in needs if need.place is not None}))
            pieces.append(Piece(None if above < 0 else above, own_ns, place.given, needed))
        return pieces

    def document(self, shown: dict[int, int]) -> dict[str, Any]:
        """The JSON document; `shown`: the ids of the shown nodes, by number."""
        return {
            "critical_path": {
                "length_ns": round(self.critical.length_ns),
                "steps": [
                    self._described(number, shown) | {"own_ns": round(self.own_ns[number])}
                    for number in self.critical.path
                    if self.is_timed(number)
                ],
                "cycles": [[self._described(number, shown) for number in each] for each in self.critical.cycles],
            },
            "slowest_kernel": self._slowest_kernel(shown),
            "returned": self._returned(shown),
            "unresolved_needs": [
                self._described(number, shown) | {"needs": need.name}
                for number, needs in enumerate(self.needs)
                for need in needs
                if need.place is None
            ],
        }

    def is_timed(self, number: int) -> bool:
        """Whether it has a time of its own, so that it can be critical or have slack."""
        return self._order[number].row is not None

    def _described(self, number: int, shown: dict[int, int]) -> dict[str, Any]:
        place = self._order[number]
        return {
            "id": shown.get(number),
            "kind": place.kind,
            "name": place.name,
            "layer": place.layer,
            "inside": None if place.above is None else place.above.name,
        }

    def _slowest_kernel(self, shown: dict[int, int]) -> dict[str, Any] | None:
        """The kernel with the longest time; without times, the one in the slowest brick."""
        kernels = [(number, place) for number, place in enumerate(self._order) if place.kernel is not None]
        timed = [(-round(each.total_ns), number, "own") for number, each in kernels if not each.timeless]
        bricks = [(-round(each.above.self_ns), number, "brick") for number, each in kernels if each.above is not None]
        if not (timed or bricks):
            return None
        _, number, by = min(timed or bricks)
        place = self._order[number]
        above = place.above
        assert place.kernel is not None
        time_ns = place.total_ns if by == "own" or above is None else above.self_ns
        return self._described(number, shown) | {
            "by": by,
            "time_ns": round(time_ns),
            "bounded": place.bounded,
            "launches": place.kernel.launches,
            "timed": 0 if place.row is None else place.row["count"],
            "source_hash": place.kernel.source(),
        }

    def _returned(self, shown: dict[int, int]) -> list[dict[str, Any]]:
        """The transfers that moved the same data back immediately, the largest first."""
        found = [
            (-of.returned_bytes, -of.returned, number, of.document(0 if place.row is None else place.row["count"]))
            for number, place in enumerate(self._order)
            if (of := place.transfer) is not None and of.returned
        ]
        return [self._described(number, shown) | moved for *_, number, moved in sorted(found)]
