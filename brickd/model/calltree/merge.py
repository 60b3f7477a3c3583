"""The call tree of many workers, merged by names: bricks, kernels, transfers, and layers.

Owns: which paths become one node, which mark belongs to which node, totals while spans are open. Must not know: files,
screens, what is shown. Invariants: the self times of all nodes add up to the recorded time; launches add up to those of
the marks; a time and the mark of its work share a node, if only one mark is possible; an unknown time stays
unknown; neither separate layers nor the order of workers change a sum; the walk uses no recursion.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from brickd.base.units import or_none
from brickd.model.brick_totals import names_in
from brickd.model.calltree.node import NOTHING, TreeNode, amounts_of
from brickd.model.summary_fold import Fold
from brickd.model.workers import Worker
from brickd.shm import _reader
from brickd.shm.marks import Definition, KernelMark, Stated, Task, TransferMark
from brickd.shm.segment_copy import CallPath, Reading

_TIMES = (_reader.UNIT_TICKS, _reader.UNIT_NS, _reader.UNIT_BOUND)
_DIRECTIONS = {_reader.UNIT_H2D: "H2D", _reader.UNIT_D2H: "D2H", _reader.UNIT_D2D: "D2D"}
_LAUNCHED_OR_MOVED = (_reader.UNIT_LAUNCHED, *_DIRECTIONS)
_PLACES = (*_TIMES, *_LAUNCHED_OR_MOVED, _reader.UNIT_NODE)
_OTHER = "other"  # the name of number 0: an unknown file
_OF_BRICKS = (_reader.UNIT_NEEDS, _reader.UNIT_DEFINED, _reader.UNIT_ENDED, _reader.UNIT_TASK)


class _Key(NamedTuple):
    """Paths with the same key become one node or mark; `above` is the row above it, or -1."""

    above: int
    name: str
    layer: int | None
    unit: int


class MergedTree:
    """All nodes of these workers.

    Attributes:
        order: the nodes in preorder.
        recorded_ns: the sum of their self times.
        stray: the number of marks at paths where they have no meaning; our writers set none.
        refused: the number of marks that the workers could not record since they started; the tree lacks them.
    """

    def __init__(self, workers: Iterable[Worker], *, layers: bool) -> None:
        self.stray = self.refused = 0
        self._apart = layers
        self._categories: dict[str, str] = {}
        self._layers: dict[_Key, set[int]] = defaultdict(set)
        self._first: dict[_Key, int] = {}
        fold: Fold[_Key] = Fold(marks=True)
        self._keys = fold.keys
        for worker in workers:
            fold.add(worker.reading, self._key_of(worker.reading))
            self.refused += worker.ledger.marks["refused"]
        self._all = list(enumerate(fold.keys))
        self._rows = [fold.row(number) for number in range(len(fold.keys))]
        self._beside: dict[tuple[int, str, int | None], list[int]] = defaultdict(list)
        self._places: dict[int, TreeNode] = {}
        self._make()
        self._mark()
        top = self._joined()
        if layers:
            _grouped(top)
        unordered = _preorder(top)
        _add_up(unordered)
        for place in (top, *unordered):
            place.below.sort(key=_rank)
        self.order = _preorder(top)
        self.recorded_ns = sum(place.self_ns for place in self.order)

    def _key_of(self, reading: Reading) -> Callable[[CallPath, int], _Key]:
        name_of = names_in(reading, self._categories)
        places = itertools.count()

        def key_of(path: CallPath, above: int) -> _Key:
            unit = _reader.UNIT_NS if path.unit == _reader.UNIT_DEFERRED else path.unit
            line = unit == _reader.UNIT_DEFINED
            key = _Key(above, name_of(path.name), or_none(path.layer) if self._apart or line else None, unit)
            if unit in _TIMES and above >= 0 and self._keys[above][1:] == (key.name, key.layer, _reader.UNIT_NODE):
                key = key._replace(above=self._keys[above].above)  # a span below a drawn node of its name is that node
            self._first[key] = min(self._first.get(key, _reader.NUMBERS_MAX), next(places))
            if path.layer >= 0 and not line:
                self._layers[key].add(path.layer)
            return key

        return key_of

    def _make(self) -> None:
        """Make nodes; a time and the mark of its work share one.

        A brick's given time and its span also share one.
        """
        around_times = {key.above for key in self._keys if key.unit in _TIMES}
        for number, key in enumerate(self._keys):
            if key.unit in _PLACES:
                self._beside[key[:3]].append(number)
        for numbers in self._beside.values():
            numbers.sort(key=lambda number: self._keys[number].unit)
            made = {number: self._place(number) for number in numbers}
            marks = [number for number in numbers if self._keys[number].unit in _LAUNCHED_OR_MOVED]
            # In a window a time may belong to a launch before the window.
            marks = [number for number in marks if self._rows[number]["count"]] or marks
            given = [n for n in numbers if self._keys[n].unit in _TIMES[1:] and self._rows[n]["count"]]
            empty = [n for n in numbers if self._keys[n].unit == _reader.UNIT_TICKS and not self._rows[n]["count"]]
            if len(marks) == 1 and given:
                place, timed = made[marks[0]], made[given[0]]
                place.unit, place.row, place.layers = timed.unit, timed.row, place.layers | timed.layers
                made[given[0]] = place
            elif not marks and given and empty and empty[0] not in around_times:
                made[empty[0]] = made[given[0]]
            for number in (n for n in numbers if self._keys[n].unit == _reader.UNIT_NODE):
                measured = [n for n in numbers if self._keys[n].unit in _TIMES and self._rows[n]["count"]]
                shares = measured or (marks if len(marks) == 1 else [])
                if shares:
                    made[number] = self._stated(number, made[shares[0]])
            self._places |= made

    def _stated(self, number: int, place: TreeNode) -> TreeNode:
        """A node that the host also draws, with the host's figures unless it has a measured time."""
        drawn = self._place(number)
        place.stated, place.layers = drawn.stated, place.layers | drawn.layers
        place.first = min(place.first, drawn.first)
        if place.row is None and drawn.row is not None:
            place.unit, place.row, place.stated_ns = _reader.UNIT_NS, drawn.row, drawn.stated_ns
        return place

    def _place(self, number: int) -> TreeNode:
        key, row = self._keys[number], self._rows[number]
        layers = self._layers.get(key, set())
        category, first = self._categories[key.name], self._first[key]
        place = TreeNode(key.name, key.layer, category, key.unit, layers=layers, first=first)
        if key.unit == _reader.UNIT_LAUNCHED:
            place.kernel, place.untimed = KernelMark(row["count"]), amounts_of(row)
        elif key.unit in _DIRECTIONS:
            place.transfer = TransferMark(_DIRECTIONS[key.unit], key.name, row["count"], row["bytes"])
        elif key.unit == _reader.UNIT_NODE:
            place.stated = Stated(row["count"], round(row["total_ns"]), row["elements"]) if row["count"] else None
            place.stated_ns = row["total_ns"]
            place.row = row if place.stated_ns else None
            place.untimed = NOTHING if place.row is not None else amounts_of(row)
        else:
            place.row = row
        return place

    def _mark(self) -> None:
        """Add the other marks to the nodes; a node that has only a need exists, too."""
        # A row has a larger number than the one above it, so this visits children before their parents.
        self._there = [key.unit in _PLACES and self._rows[n]["count"] > 0 for n, key in self._all]
        for number, key in reversed(self._all):
            if self._there[number] and key.above >= 0:
                self._there[key.above] = True
        for number, key in self._all:
            if number not in self._places:
                self._add_mark(number, key, self._rows[number]["count"])

    def _add_mark(self, number: int, key: _Key, count: int) -> None:
        above = self._places.get(key.above)
        unit = self._keys[key.above].unit if key.above >= 0 else None
        kernel = above.kernel if above is not None and unit == _reader.UNIT_LAUNCHED else None
        transfer = above.transfer if above is not None and unit in _DIRECTIONS else None
        if key.unit == _reader.UNIT_SHAPED and kernel is not None:
            kernel.shapes[key.name] += count
        elif key.unit == _reader.UNIT_RETURNED and transfer is not None:
            transfer.returned += count
            transfer.returned_bytes += self._rows[number]["bytes"]
        elif key.unit in _OF_BRICKS and unit in (*_TIMES, _reader.UNIT_NODE):
            self._add_to_place(number, key, count)
        else:
            self.stray += count

    def _add_to_place(self, mark: int, key: _Key, count: int) -> None:
        """Add a mark to the node of its path, or to the one of another unit if only that exists."""
        beside = self._beside[self._keys[key.above][:3]]
        numbers = [number for number in (key.above, *beside) if self._there[number]]
        if not numbers and key.unit == _reader.UNIT_NEEDS and count:
            numbers = [key.above]
            at = key.above
            while at >= 0 and not self._there[at]:
                self._there[at] = True
                at = self._keys[at].above
        place = self._places.get(numbers[0]) if numbers else None
        if place is None:
            return
        if key.unit == _reader.UNIT_NEEDS:
            place.needs[key.name] += count
        elif key.unit == _reader.UNIT_DEFINED:
            place.definitions.add(Definition(None if key.name == _OTHER else key.name, key.layer))
        else:
            place.task = place.task or Task()
            if key.unit == _reader.UNIT_TASK:
                place.task.polls += self._rows[mark]["elements"]
                place.task.yields += self._rows[mark]["bytes"]
            else:
                place.task.traced = True
                place.task.ended += count

    def _joined(self) -> TreeNode:
        top = TreeNode("", None, "", None)
        homes: list[TreeNode | None] = []  # the node of each row, or the nearest one above
        joined: set[int] = set()
        for number, key in self._all:
            place, above = self._places.get(number), homes[key.above] if key.above >= 0 else None
            homes.append(above if place is None else place)
            if place is None or not self._there[number] or id(place) in joined:
                continue
            joined.add(id(place))
            place.above = above
            (top if above is None else above).below.append(place)
        return top


def _preorder(top: TreeNode) -> list[TreeNode]:
    order: list[TreeNode] = []
    to_visit = top.below[::-1]
    while to_visit:
        place = to_visit.pop()
        order.append(place)
        to_visit += reversed(place.below)
    return order


def _grouped(top: TreeNode) -> None:
    """Insert a node for each layer above the layer's outermost nodes."""
    to_visit: list[tuple[TreeNode, int | None]] = [(top, None)]
    while to_visit:
        place, layer = to_visit.pop()
        groups: dict[int, TreeNode] = {}
        below, place.below = place.below, []
        for each in below:
            around = place
            if each.layer is not None and each.layer != layer:
                if each.layer not in groups:
                    group = groups[each.layer] = TreeNode(f"Layer {each.layer}", each.layer, "layer", None)
                    group.above, group.layers = None if place is top else place, {each.layer}
                    group.first = each.first
                    place.below.append(group)
                around = each.above = groups[each.layer]
                around.first = min(around.first, each.first)
            around.below.append(each)
            to_visit.append((each, layer if each.layer is None else each.layer))


def _add_up(order: Sequence[TreeNode]) -> None:
    for place in reversed(order):
        stated_ns = sum(each.stated_ns for each in place.below)
        if place.row is not None and place.stated_ns:
            place.row["self_ns"] = max(0.0, place.row["total_ns"] - sum(each.total_ns for each in place.below))
            place.stated_ns = stated_ns + place.row["self_ns"]
        elif place.row is None:
            place.stated_ns = stated_ns
        else:  # times that a host states inside a span are not self time
            place.row["self_ns"] = max(0.0, place.row["self_ns"] - stated_ns)
        place.ended_ns = place.self_ns + sum(each.ended_ns for each in place.below if not each.given)
        if place.unit is None or (place.drawn and place.row is None):
            place.host_ns = sum(each.host_ns for each in place.below)
            place.total_ns = sum(each.total_ns for each in place.below)
        elif place.row is not None and place.drawn:
            place.total_ns = place.row["total_ns"]
            place.host_ns = max(place.total_ns, sum(each.host_ns for each in place.below))
        elif place.row is not None and place.given:
            place.total_ns = place.row["total_ns"]
        elif place.row is not None:
            # An open span has not added to its own total, but the ended spans below it have added to theirs.
            place.host_ns = place.total_ns = max(place.row["total_ns"], place.ended_ns)
        place.whole.self_ns = place.self_ns + sum(each.whole.self_ns for each in place.below)
        place.whole.nodes = 1 + sum(each.whole.nodes for each in place.below)


def _rank(place: TreeNode) -> tuple[int, int, str, int, int]:
    launches = 0 if place.kernel is None else place.kernel.launches
    layer = -1 if place.layer is None else place.layer
    return -round(place.total_ns), -launches, place.name, layer, place.unit or 0
