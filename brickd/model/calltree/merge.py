"""The call tree of many workers, merged by names.

Owns: the rows of the tree, and the row to which each path of each worker belongs. Must not know: which rows become one
node (`graph_nodes`), files, screens, what is shown. Invariants: The self times of all nodes add up to the recorded
time. Neither separate layers nor the order of workers change a sum.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable

from brickd.base.units import or_none
from brickd.model.brick_totals import names_in
from brickd.model.calltree.graph_nodes import GraphNodes, RowKey, TreeRow, key_of
from brickd.model.summary_fold import SummaryFold
from brickd.model.workers import Worker
from brickd.shm import _reader
from brickd.shm.segment_copy import CallPath, Reading


class MergedTree:
    """All nodes of the call trees of some workers.

    Attributes:
        order: the nodes in preorder.
        categories: the category of each brick, keyed by the brick's name.
        recorded_ns: the sum of the self times of the nodes.
        stray: the number of marks at paths where they have no meaning; a correct agent sets none.
        refused: the number of marks that the workers could not record since they started. These marks are not in the
            tree.
    """

    def __init__(self, workers: Iterable[Worker], *, layers: bool) -> None:
        self.refused = 0
        self.categories: dict[str, str] = {}
        self._apart = layers
        self._layers: dict[RowKey, set[int]] = defaultdict(set)
        self._first: dict[RowKey, int] = {}
        fold: SummaryFold[RowKey] = SummaryFold(marks=True)
        self._keys = fold.keys
        for worker in workers:
            fold.add(worker.reading, self._key_of(worker.reading))
            self.refused += worker.ledger.marks["refused"]
        rows = [
            TreeRow(key, fold.row(number), self._first[key], self._layers.get(key, set()))
            for number, key in enumerate(fold.keys)
        ]
        nodes = GraphNodes(rows, layers=layers)
        self.order, self.stray = nodes.order, nodes.stray
        self.recorded_ns = sum(node.self_ns for node in self.order)

    def _key_of(self, reading: Reading) -> Callable[[CallPath, int], RowKey]:
        name_of = names_in(reading, self.categories)
        places = itertools.count()

        def of_path(path: CallPath, above: int) -> RowKey:
            line = path.unit == _reader.UNIT_DEFINED
            layer = or_none(path.layer) if self._apart or line else None
            key = key_of(self._keys, above, name_of(path.name), layer, path.unit)
            self._first[key] = min(self._first.get(key, _reader.NUMBERS_MAX), next(places))
            if path.layer >= 0 and not line:
                self._layers[key].add(path.layer)
            return key

        return of_path
