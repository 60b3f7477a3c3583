"""The call tree of many workers: which of its nodes are shown, and their documents.

Owns: which nodes are shown, the totals of the omitted nodes, the documents. Must not know: files, screens, how nodes
are merged. Invariants: An omitted node is counted in the nearest shown node above it. An unknown value of a node is
null, never 0. The walk over the tree uses no recursion.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from brickd.model.brick_totals import per_second, percent_of
from brickd.model.calltree.dependencies import Graph
from brickd.model.calltree.merge import MergedTree
from brickd.model.calltree.tree_node import OmittedNodes, TreeNode
from brickd.model.workers import Worker
from brickd.shm import _reader

_SINGLE = ("mean", "min", "max", "p50", "p90", "p95", "p99")
_EXTREMES = ("min", "max")


@dataclass(frozen=True, slots=True)
class Node:
    """A shown node.

    Attributes:
        number: the index of the node in the list of all nodes in preorder.
        category: the category of its brick; "layer" for a layer.
        parent: the index of the node above it; None for a root.
        recorded_ns: the recorded time of the whole tree.
        left: the omitted nodes below it.
        needs: its needs as JSON documents.
        slack_ns: how much longer the node may take before the critical path grows; None for a node without its own
            time.
        critical: whether it is on the critical path.
    """

    number: int
    parent: int | None
    depth: int
    place: TreeNode[_reader.Row]
    category: str
    recorded_ns: float
    left: OmittedNodes = field(default_factory=OmittedNodes)
    needs: list[dict[str, Any]] = field(default_factory=list)
    slack_ns: float | None = None
    critical: bool = False

    @property
    def layer(self) -> int | None:
        """The layer of all spans of the node; None if they have no layer, or several layers."""
        return next(iter(self.place.layers)) if len(self.place.layers) == 1 else None

    def document(self, *, windowed: bool = False) -> dict[str, Any]:
        """Return the node as JSON. In a window, the shortest and the longest span are unknown."""
        place, timeless = self.place, self.place.timeless
        known = {time for time in _SINGLE if place.count and not (windowed and time in _EXTREMES)}
        return {
            "id": self.number,
            "parent": self.parent,
            "depth": self.depth,
            **place.document(),
            "layer": self.layer,
            "layers": len(place.layers),
            "category": self.category,
            "bounded": place.bounded,
            "self_ns": None if timeless else round(place.self_ns),
            "share_percent": None if timeless else percent_of(place.total_ns, self.recorded_ns),
            **{f"{time}_ns": self._time(f"{time}_ns") if time in known else None for time in _SINGLE},
            "cv": self._variation(),
            "flops_per_second": None if place.bounded else per_second(place.timed_flops, place.total_ns),
            "flops_per_byte": place.amounts.intensity,
            "needs": self.needs,
            "slack_ns": None if self.slack_ns is None else round(self.slack_ns),
            "critical": self.critical,
            "hidden_nodes": self.left.nodes,
            "hidden_self_ns": round(self.left.self_ns),
        }

    def _variation(self) -> float | None:
        row = self.place.row
        return round(row["deviation_ns"] / row["mean_ns"], 4) if row is not None and row["mean_ns"] else None

    def _time(self, key: str) -> int:
        assert self.place.row is not None
        time_ns: float = self.place.row[key]  # type: ignore[literal-required]
        return round(time_ns)


@dataclass(slots=True)
class Tree:
    """The shown nodes, and the figures of the whole tree.

    Attributes:
        nodes: the shown nodes in preorder.
        recorded_ns: the sum of the self times of all nodes, shown or not.
        left: the omitted roots, with all nodes below them.
        shown: maps the index of each shown node in the whole tree to its index in `nodes`.
    """

    nodes: list[Node]
    recorded_ns: float
    left: OmittedNodes
    stray: int
    refused: int
    graph: Graph
    shown: dict[int, int]

    def document(self, *, windowed: bool = False) -> dict[str, Any]:
        """Return the tree as JSON."""
        return {
            "recorded_ns": round(self.recorded_ns),
            "nodes": [node.document(windowed=windowed) for node in self.nodes],
            "hidden_nodes": self.left.nodes,
            "hidden_self_ns": round(self.left.self_ns),
            **self.graph.document(self.shown),
            "stray_marks": self.stray,
            "refused_marks": None if windowed else self.refused,
        }


def tree(workers: Iterable[Worker], *, layers: bool, depth: int | None = None, least_percent: float = 0.0) -> Tree:
    """Merge the workers' trees.

    Args:
        workers: the workers whose summaries are merged.
        layers: whether bricks that differ only in their layer are separate nodes, below a node for each layer.
        depth: the number of levels to show; None for all levels.
        least_percent: a node with a smaller known share of the recorded time is omitted, with all nodes below it.
    """
    places = MergedTree(workers, layers=layers)
    graph = Graph(places.order)
    result = Tree([], places.recorded_ns, OmittedNodes(), places.stray, places.refused, graph, {})
    least_ns = places.recorded_ns * least_percent / 100
    on_path = set(graph.critical.path)
    number = 0
    while number < len(places.order):
        place = places.order[number]
        parent = None if place.above is None else result.nodes[result.shown[graph.number(place.above)]]
        level = 0 if parent is None else parent.depth + 1
        if (depth is not None and level >= depth) or (place.total_ns < least_ns and not place.timeless):
            left = result.left if parent is None else parent.left
            left.nodes += place.whole.nodes
            left.self_ns += place.whole.self_ns
            number += place.whole.nodes  # the subtree of a node follows it directly, so this skips the subtree
            continue
        result.shown[number] = len(result.nodes)
        result.nodes.append(
            Node(
                number=len(result.nodes),
                parent=None if parent is None else parent.number,
                depth=level,
                place=place,
                category="layer" if place.unit is None else places.categories[place.name],
                recorded_ns=places.recorded_ns,
                slack_ns=graph.critical.slack_ns[number] if graph.is_timed(number) else None,
                critical=number in on_path and graph.is_timed(number),
            )
        )
        number += 1
    for number, shown in result.shown.items():
        result.nodes[shown].needs.extend(graph.needs_document(number, result.shown))
    return result
