"""The needs of the nodes in a call tree, and the critical path.

Owns: which node a needed name refers to, and how nodes become pieces of work. Must not know: paths, screens, what is
shown. This file is part of the agent; brickd has a symbolic link to it. Invariants: a name refers to the nearest node
of that name; the running time is linear in the length of chains and in the number of needs. The nearest node is looked
for in this order: among the siblings of the node that needs it, first those in the same layer; among the siblings of
its parent, of its grandparent and so on; and last in the whole tree, where the first node of that name is taken.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .critical_path import Critical, Piece, critical
from .tree_node import TreeNode


@dataclass(frozen=True, slots=True)
class Need:
    """A needed name: the index of its node (None: no node has this name), and how often it was recorded."""

    name: str
    place: int | None
    count: int


class GraphNeeds:
    """The dependencies of nodes. The nodes are in preorder.

    Attributes:
        needs: for each node, the nodes that it needs. own_ns: for each node, its time without the time of the nodes
            below it; device work below it is not subtracted.
    """

    def __init__(self, order: Sequence[TreeNode[Any]]) -> None:
        self._order = order
        self._numbers = {id(node): number for number, node in enumerate(order)}
        self.needs = self._needs()
        pieces = self._pieces()
        self.own_ns = [piece.own_ns for piece in pieces]
        self.critical: Critical = critical(pieces)

    def number(self, node: TreeNode[Any]) -> int:
        """The node's index in the order."""
        return self._numbers[id(node)]

    def is_timed(self, number: int) -> bool:
        """Whether the node has a time of its own, so that it can be critical or have slack."""
        return self._order[number].row is not None

    def parent(self, number: int) -> int | None:
        """The index of a node's parent."""
        above = self._order[number].above
        return None if above is None else self.number(above)

    def needed(self, number: int) -> list[int]:
        """The indexes of the nodes that a node needs."""
        return sorted({need.place for need in self.needs[number] if need.place is not None})

    def _needs(self) -> list[list[Need]]:
        # A node's level is the index of its nearest ancestor that is not a layer, or -1.
        levels: list[int] = []  # the level of each node
        layers: list[int | None] = []  # the layer of each node
        first: dict[str, int] = {}
        nearest: dict[tuple[int, str], int] = {}
        same_layer: dict[tuple[int, str, int | None], int] = {}
        names: dict[int, set[str]] = defaultdict(set)
        for number, node in enumerate(self._order):
            above = self.parent(number)
            level = -1 if above is None else levels[above] if self._order[above].kind == "layer" else above
            layer = node.layer if node.layer is not None or above is None else layers[above]
            levels.append(level)
            layers.append(layer)
            if node.kind != "layer":
                first.setdefault(node.name, number)
                nearest.setdefault((level, node.name), number)
                same_layer.setdefault((level, node.name, layer), number)
                names[level].add(node.name)
        # During the walk: for each name, the enclosing levels that have a node of this name.
        around: dict[str, list[int]] = defaultdict(list)
        inside: list[tuple[int, int]] = []  # the enclosing levels, and the end of each

        def enter(level: int, end: int) -> None:
            inside.append((level, end))
            for name in names[level]:
                around[name].append(level)

        found: list[list[Need]] = []
        enter(-1, len(self._order))
        for number, node in enumerate(self._order):
            while inside[-1][1] <= number:
                for name in names[inside.pop()[0]]:
                    around[name].pop()
            here: list[Need] = []
            for name, count in sorted(node.needs.items()):
                needed = first.get(name)
                if around[name]:
                    level = around[name][-1]
                    needed = same_layer.get((level, name, layers[number]), nearest[level, name])
                here.append(Need(name, needed, count))
            found.append(here)
            if node.kind != "layer":
                enter(number, number + node.whole.nodes)
        return found

    def _pieces(self) -> list[Piece]:
        """Make the pieces. Device work does not reduce the own time of the brick that launched it."""
        pieces = []
        for number, node in enumerate(self._order):
            own_ns = 0.0
            if node.given:
                own_ns = node.total_ns
            elif node.row is not None:
                own_ns = max(node.self_ns, node.host_ns - sum(each.host_ns for each in node.below))
            pieces.append(Piece(self.parent(number), own_ns, node.given, tuple(self.needed(number))))
        return pieces
