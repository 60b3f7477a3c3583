"""Makes the nodes of a call tree from rows. A row sums the paths with the same name, layer, unit and place.

Owns: which paths are one row, which rows are one node, which mark belongs to which node, and what the totals are while
spans are open. Must not know: where rows come from, what is shown. This file is part of the agent, where rows come from
the process's own segment; brickd has a symbolic link to it, and there, rows come from many workers. Invariants: the
self times of nodes add up to the recorded time; the launches of nodes add up to the launches of the marks; if there is
only one mark to which a time can belong, the mark and the time are in the same node; a time that is unknown stays
unknown; neither the order of rows nor whether layers are separate changes a sum; the walk uses no recursion.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, NamedTuple

from .graph_marks import Definition, KernelMark, Stated, Task, TransferMark
from .tree_node import (
    BOUND,
    DEFERRED,
    DEFINED,
    DIRECTIONS,
    ENDED,
    LAUNCHED,
    NEEDS,
    NODE,
    NOTHING,
    NS,
    RETURNED,
    SHAPED,
    TASK,
    TICKS,
    F,
    TreeNode,
    amounts_of,
)

_GIVEN = (NS, BOUND)
_TIMES = (TICKS, *_GIVEN)
_LAUNCHED_OR_MOVED = (LAUNCHED, *DIRECTIONS)
_PLACES = (*_TIMES, *_LAUNCHED_OR_MOVED, NODE)
_OTHER = "other"  # the name with the number 0; as the name of a file, it means unknown
_OF_BRICKS = (NEEDS, DEFINED, ENDED, TASK)


class RowKey(NamedTuple):
    """The key of a row: paths with the same key are one row. `above` is the index of the parent row, or -1."""

    above: int
    name: str
    layer: int | None
    unit: int


def key_of(keys: Sequence[RowKey], above: int, name: str, layer: int | None, unit: int) -> RowKey:
    """Return the key of a path below the row `above`.

    If the host draws a node, a span directly below it that has the same name and layer is part of that node.

    Times of deferred work count as times that a device measured.
    """
    unit = NS if unit == DEFERRED else unit
    if unit in _TIMES and above >= 0 and keys[above][1:] == (name, layer, NODE):
        above = keys[above].above
    return RowKey(above, name, layer, unit)


@dataclass(slots=True)
class TreeRow(Generic[F]):
    """A row; its parent row precedes it in the sequence.

    Attributes:
        first: the row's position in the order in which a worker reached the paths for the first time; with several
        workers, the smallest of these positions. layers: all layers of its paths. node: the node of the row; None: the
        row is a mark. there: whether this row or a row below it has records.
    """

    key: RowKey
    totals: F
    first: int
    layers: set[int] = field(default_factory=set)
    node: TreeNode[F] | None = None
    there: bool = False


class GraphNodes(Generic[F]):
    """All nodes of these rows. `layers` tells whether there is a node for each layer.

    Attributes:
        order: the nodes in preorder, with the largest children first.
        stray: the number of marks at paths where a mark has no meaning; our writers set no such marks.
    """

    def __init__(self, rows: Sequence[TreeRow[F]], *, layers: bool) -> None:
        self.stray = 0
        self._rows = rows
        self._at_place: dict[tuple[int, str, int | None], list[int]] = defaultdict(list)
        self._make()
        self._find()
        for row in rows:
            if row.node is None:
                self._add_mark(row)
        top = self._joined()
        if layers:
            _grouped(top)
        unordered = _preorder(top)
        _add_up(unordered)
        for node in (top, *unordered):
            node.below.sort(key=_rank)
        self.order = _preorder(top)

    def _make(self) -> None:
        """Make the nodes.

        A time shares a node with the mark of its work, and a brick's given time with the brick's span.
        """
        rows = self._rows
        around_times = {row.key.above for row in rows if row.key.unit in _TIMES}
        for number, row in enumerate(rows):
            if row.key.unit in _PLACES:
                self._at_place[row.key[:3]].append(number)
        for numbers in self._at_place.values():
            numbers.sort(key=lambda number: rows[number].key.unit)
            made = {number: _node(rows[number]) for number in numbers}
            unit = {number: rows[number].key.unit for number in numbers}
            counted = [number for number in numbers if rows[number].totals["count"]]
            marks = [number for number in numbers if unit[number] in _LAUNCHED_OR_MOVED]
            # If only a window of time is read, a time in it may belong to a launch before it.
            marks = [number for number in marks if number in counted] or marks
            given = [number for number in counted if unit[number] in _GIVEN]
            empty = [number for number in numbers if unit[number] == TICKS and number not in counted]
            if len(marks) == 1 and given:
                node, timed = made[marks[0]], made[given[0]]
                node.unit, node.row, node.layers = timed.unit, timed.row, node.layers | timed.layers
                made[given[0]] = node
            elif not marks and given and empty and empty[0] not in around_times:
                made[empty[0]] = made[given[0]]
            shares = [number for number in counted if unit[number] in _TIMES] or (marks if len(marks) == 1 else [])
            for number in (number for number in numbers if unit[number] == NODE and shares):
                made[number] = _shared(made[shares[0]], made[number])
            for number, node in made.items():
                rows[number].node = node

    def _find(self) -> None:
        """Find the rows that have records. A row that has no records but needs another node is found, too."""
        for row in reversed(self._rows):
            row.there |= row.key.unit in _PLACES and row.totals["count"] > 0
            if row.there and row.key.above >= 0:
                self._rows[row.key.above].there = True
        needs = [row for row in self._rows if row.key.unit == NEEDS and row.totals["count"] and self._is_of_brick(row)]
        for row in sorted(needs, key=lambda row: (row.first, row.key.name)):
            above = row.key.above if self._marked(row) is None else -1
            while above >= 0 and not self._rows[above].there:
                self._rows[above].there = True
                above = self._rows[above].key.above

    def _is_of_brick(self, mark: TreeRow[F]) -> bool:
        above = mark.key.above
        return mark.key.unit in _OF_BRICKS and above >= 0 and self._rows[above].key.unit in (*_TIMES, NODE)

    def _marked(self, mark: TreeRow[F]) -> TreeNode[F] | None:
        """Return a mark's node.

        If the path of the mark has no records, it is the node of another unit at the same place.
        """
        above = mark.key.above
        numbers = (above, *self._at_place[self._rows[above].key[:3]])
        return next((self._rows[number].node for number in numbers if self._rows[number].there), None)

    def _add_mark(self, mark: TreeRow[F]) -> None:
        count, above = mark.totals["count"], self._rows[mark.key.above] if mark.key.above >= 0 else None
        node, unit = (None, None) if above is None else (above.node, above.key.unit)
        kernel = node.kernel if node is not None and unit == LAUNCHED else None
        transfer = node.transfer if node is not None and unit in DIRECTIONS else None
        if mark.key.unit == SHAPED and kernel is not None:
            kernel.shapes[mark.key.name] += count
        elif mark.key.unit == RETURNED and transfer is not None:
            transfer.returned += count
            transfer.returned_bytes += mark.totals["bytes"]
        elif not self._is_of_brick(mark):
            self.stray += count
        elif (marked := self._marked(mark)) is not None:
            _add_to_brick(marked, mark)

    def _joined(self) -> TreeNode[F]:
        top = TreeNode[F]("", None, None)
        homes: list[TreeNode[F] | None] = []  # the node of each row, or of its nearest ancestor with a node
        joined: set[int] = set()
        for row in self._rows:
            node, above = row.node, homes[row.key.above] if row.key.above >= 0 else None
            homes.append(above if node is None else node)
            if node is None or not row.there or id(node) in joined:
                continue
            joined.add(id(node))
            node.above = above
            (top if above is None else above).below.append(node)
        return top


def _node(row: TreeRow[F]) -> TreeNode[F]:
    (_, name, layer, unit), totals = row.key, row.totals
    node = TreeNode[F](name, layer, unit, layers=row.layers, first=row.first)
    if unit == LAUNCHED:
        node.kernel, node.untimed = KernelMark(totals["count"]), amounts_of(totals)
    elif unit in DIRECTIONS:
        node.transfer = TransferMark(DIRECTIONS[unit], name, totals["count"], totals["bytes"])
    elif unit == NODE:
        stated_ns = totals["total_ns"]
        node.stated = Stated(totals["count"], round(stated_ns), totals["elements"]) if totals["count"] else None
        node.stated_ns, node.row = stated_ns, totals if stated_ns else None
        node.untimed = NOTHING if stated_ns else amounts_of(totals)
    else:
        node.row = totals
    return node


def _shared(node: TreeNode[F], drawn: TreeNode[F]) -> TreeNode[F]:
    """Merge `drawn`, the same node as the host draws it, into `node`.

    The host's time counts only if no time was measured.
    """
    node.stated, node.layers = drawn.stated, node.layers | drawn.layers
    node.first = min(node.first, drawn.first)
    if node.row is None and drawn.row is not None:
        node.unit, node.row, node.stated_ns = NS, drawn.row, drawn.stated_ns
    return node


def _add_to_brick(node: TreeNode[F], mark: TreeRow[F]) -> None:
    (_, name, layer, unit), totals = mark.key, mark.totals
    if unit == NEEDS:
        node.needs[name] += totals["count"]
    elif unit == DEFINED:
        node.definitions.add(Definition(None if name == _OTHER else name, layer))
    else:
        node.task = node.task or Task()
        if unit == TASK:
            node.task.polls += totals["elements"]
            node.task.yields += totals["bytes"]
        else:
            node.task.traced = True
            node.task.ended += totals["count"]


def _preorder(top: TreeNode[F]) -> list[TreeNode[F]]:
    order: list[TreeNode[F]] = []
    to_visit = top.below[::-1]
    while to_visit:
        node = to_visit.pop()
        order.append(node)
        to_visit += reversed(node.below)
    return order


def _grouped(top: TreeNode[F]) -> None:
    """Insert a node for each layer above the layer's outermost nodes."""
    to_visit: list[tuple[TreeNode[F], int | None]] = [(top, None)]
    while to_visit:
        node, layer = to_visit.pop()
        groups: dict[int, TreeNode[F]] = {}
        below, node.below = node.below, []
        for each in below:
            around = node
            if each.layer is not None and each.layer != layer:
                if each.layer not in groups:
                    group = groups[each.layer] = TreeNode[F](f"Layer {each.layer}", each.layer, None)
                    group.above, group.layers = None if node is top else node, {each.layer}
                    group.first = each.first
                    node.below.append(group)
                around = each.above = groups[each.layer]
                around.first = min(around.first, each.first)
            around.below.append(each)
            to_visit.append((each, layer if each.layer is None else each.layer))


def _add_up(order: Sequence[TreeNode[F]]) -> None:
    for node in reversed(order):
        stated_ns = sum(each.stated_ns for each in node.below)
        total_ns = 0.0 if node.row is None else node.row["total_ns"]
        if node.row is not None and node.stated_ns:
            node.self_ns = max(0.0, total_ns - sum(each.total_ns for each in node.below))
            node.stated_ns = stated_ns + node.self_ns
        elif node.row is None:
            node.stated_ns = stated_ns
        else:  # times that a host states inside a span are not self times
            node.self_ns = max(0.0, node.row["self_ns"] - stated_ns)
        node.ended_ns = node.self_ns + sum(each.ended_ns for each in node.below if not each.given)
        if node.unit is None or (node.drawn and node.row is None):
            node.host_ns = sum(each.host_ns for each in node.below)
            node.total_ns = sum(each.total_ns for each in node.below)
        elif node.row is not None and node.drawn:
            node.total_ns = total_ns
            node.host_ns = max(total_ns, sum(each.host_ns for each in node.below))
        elif node.row is not None and node.given:
            node.total_ns = total_ns
        elif node.row is not None:
            # An open span is not yet in its own total, but the ended spans below it are in their totals.
            node.host_ns = node.total_ns = max(total_ns, node.ended_ns)
        node.whole.self_ns = node.self_ns + sum(each.whole.self_ns for each in node.below)
        node.whole.nodes = 1 + sum(each.whole.nodes for each in node.below)


def _rank(node: TreeNode[F]) -> tuple[int, int, str, int, int, int]:
    launches = 0 if node.kernel is None else node.kernel.launches
    layer = -1 if node.layer is None else node.layer
    return -round(node.total_ns), -launches, node.name, layer, node.unit or 0, node.first
