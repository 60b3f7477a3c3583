"""The call tree of many workers, merged by names.

Owns: what one node is, its total while spans are open, what is left out and what that is worth. Must not know: files,
screens. Invariants: the self times of all nodes add up to what was recorded; what is left out is counted in the nearest
node above it that is not; layers, folded or not, and the order of workers change no sum; a chain of any length is
walked without recursion.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from brickd import _reader
from brickd.called import or_none
from brickd.fold import Fold
from brickd.reading import Path, Reading
from brickd.totals import names_in, percent_of
from brickd.workers import Worker


@dataclass(slots=True)
class Left:
    """What is left out below a node: how many nodes, and their self times."""

    nodes: int = 0
    self_ns: float = 0.0


@dataclass(frozen=True, slots=True)
class Node:
    """A brick at one place of the tree.

    Attributes:
        number: its place in the tree's list: parents first, the largest of their children next.
        parent: the number of the node above it; None at a root.
        depth: how many nodes are above it.
        name: of the brick.
        layer: the layer of all its spans; None where they have none, or several.
        layers: how many layers it stands for.
        category: of the brick.
        given: its times were measured elsewhere and handed over in ns; they are no part of the total above it.
        bounded: nor were they measured at all: they are parts of the time until a device was waited for.
        total_ns: the time in its spans that ended, and in those below it where the one above is still open.
        recorded_ns: what the whole tree recorded.
        row: the totals of its spans.
        left: what of the tree below it is left out.
    """

    number: int
    parent: int | None
    depth: int
    name: str
    layer: int | None
    layers: int
    category: str
    given: bool
    bounded: bool
    total_ns: float
    recorded_ns: float
    row: _reader.Row
    left: Left

    def document(self, *, windowed: bool = False) -> dict[str, Any]:
        """As JSON has it: times in whole nanoseconds, those of single spans only where they are known.

        Args:
            windowed: the totals are those of a window, whose shortest and longest span nobody knows.
        """
        row = self.row
        single = ("mean", "min", "max", "p50", "p90", "p99")
        known = {time for time in single if row["count"] and not (windowed and time in ("min", "max"))}
        return {
            "id": self.number,
            "parent": self.parent,
            "depth": self.depth,
            "name": self.name,
            "layer": self.layer,
            "layers": self.layers,
            "category": self.category,
            "given": self.given,
            "bounded": self.bounded,
            "count": row["count"],
            "total_ns": round(self.total_ns),
            "self_ns": round(row["self_ns"]),
            "share_percent": percent_of(self.total_ns, self.recorded_ns),
            **{f"{time}_ns": round(row[f"{time}_ns"]) if time in known else None for time in single},  # type: ignore[literal-required]
            "hidden_nodes": self.left.nodes,
            "hidden_self_ns": round(self.left.self_ns),
        }


@dataclass(slots=True)
class Tree:
    """The nodes that are shown, and what else there is.

    Attributes:
        nodes: in preorder.
        recorded_ns: the self times of all nodes, shown or not.
        left: roots that are left out, with all below them.
    """

    nodes: list[Node] = field(default_factory=list)
    recorded_ns: float = 0.0
    left: Left = field(default_factory=Left)


class _Key(NamedTuple):
    """What makes two paths one node; `above` is the row of the node above it, or -1."""

    above: int
    name: str
    layer: int | None
    given: bool
    bounded: bool


class _Merged:
    """All workers' rows, each with what lies below it."""

    def __init__(self, workers: Iterable[Worker], *, layers: bool) -> None:
        fold: Fold[_Key] = Fold()
        self.keys = fold.keys
        self.categories: dict[str, str] = {}
        self.layers: dict[_Key, set[int]] = defaultdict(set)
        for worker in workers:
            fold.add_like_the_last(worker.reading, self._key_of(worker.reading, apart=layers))
        self.rows = [fold.row(number) for number in range(len(self.keys))]
        self.below: dict[int, list[int]] = defaultdict(list)
        self.total_ns = [0.0] * len(self.keys)
        self.whole = [Left() for _ in self.keys]  # were it left out
        self._add_up()

    def _key_of(self, reading: Reading, *, apart: bool) -> Callable[[Path, int], _Key]:
        name_of = names_in(reading, self.categories)

        def key_of(path: Path, above: int) -> _Key:
            layer = or_none(path.layer) if apart else None
            given, bounded = path.unit != _reader.UNIT_TICKS, path.unit == _reader.UNIT_BOUND
            key = _Key(above, name_of(path.name), layer, given, bounded)
            if path.layer >= 0:
                self.layers[key].add(path.layer)
            return key

        return key_of

    def _add_up(self) -> None:
        # A row came after the one above it: backwards, what is below a row is known before it.
        ended_ns = [0.0] * len(self.keys)
        for number in reversed(range(len(self.keys))):
            key, row, whole = self.keys[number], self.rows[number], self.whole[number]
            ended_ns[number] += row["self_ns"]
            # A span that is still open has given nothing to its own total, and those below it have to theirs.
            self.total_ns[number] = row["total_ns"] if key.given else max(row["total_ns"], ended_ns[number])
            whole.self_ns += row["self_ns"]
            whole.nodes += bool(whole.nodes or row["count"])
            if whole.nodes:
                self.below[key.above].append(number)
            if key.above >= 0:
                ended_ns[key.above] += 0.0 if key.given else ended_ns[number]
                self.whole[key.above].self_ns += whole.self_ns
                self.whole[key.above].nodes += whole.nodes
        for numbers in self.below.values():
            numbers.sort(key=self._rank)

    def _rank(self, number: int) -> tuple[int, str, int, bool, bool]:
        key = self.keys[number]
        layer = -1 if key.layer is None else key.layer
        return -round(self.total_ns[number]), key.name, layer, key.given, key.bounded


def tree(workers: Iterable[Worker], *, layers: bool, depth: int | None = None, least_percent: float = 0.0) -> Tree:
    """Merge the workers' trees.

    Args:
        workers: whose summaries.
        layers: whether bricks that differ in their layer alone are nodes of their own.
        depth: how many levels are shown; None: all.
        least_percent: nodes with less of all that was recorded are left out, with all below them.
    """
    merged = _Merged(workers, layers=layers)
    result = Tree(recorded_ns=sum(row["self_ns"] for row in merged.rows))
    least_ns = result.recorded_ns * least_percent / 100

    def shown(above: int, level: int, left: Left) -> list[int]:
        kept = []
        for number in merged.below[above]:
            if (depth is None or level < depth) and merged.total_ns[number] >= least_ns:
                kept.append(number)
            else:
                left.nodes += merged.whole[number].nodes
                left.self_ns += merged.whole[number].self_ns
        return kept

    to_visit: list[tuple[int, int | None, int]] = [(row, None, 0) for row in reversed(shown(-1, 0, result.left))]
    while to_visit:
        number, parent, level = to_visit.pop()
        key, found = merged.keys[number], merged.layers.get(merged.keys[number], set())
        node = Node(
            number=len(result.nodes),
            parent=parent,
            depth=level,
            name=key.name,
            layer=next(iter(found)) if len(found) == 1 else None,
            layers=len(found),
            category=merged.categories[key.name],
            given=key.given,
            bounded=key.bounded,
            total_ns=merged.total_ns[number],
            recorded_ns=result.recorded_ns,
            row=merged.rows[number],
            left=Left(),
        )
        result.nodes.append(node)
        below = shown(number, level + 1, node.left)
        to_visit += [(each, node.number, level + 1) for each in reversed(below)]
    return result
