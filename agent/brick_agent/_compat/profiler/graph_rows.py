"""The rows of this process's graph: for each key, the sum of all paths in its own segment that have this key.

Must not know: which rows become one node (`graph_nodes`), reports. Invariant: a parent row comes before its children.
"""

from __future__ import annotations

from collections import defaultdict

from brick_agent._compat.profiler.graph_nodes import RowKey, TreeRow, key_of
from brick_agent._compat.profiler.tree_node import Figures

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from brick_agent._compat.profiler.own_segment import Path


def rows_of(paths: Mapping[int, Path]) -> list[TreeRow[Figures]]:
    """The rows."""
    rows: list[TreeRow[Figures]] = []
    keys: list[RowKey] = []
    numbers: dict[RowKey, int] = {}
    of_path: dict[int, int] = {}
    for place, number in enumerate(_walked(paths)):
        path, stats = paths[number], paths[number].stats
        layer = None if path.layer < 0 else path.layer
        key = key_of(keys, of_path.get(path.parent, -1), stats.name, layer, path.unit)
        of_path[number] = numbers.setdefault(key, len(rows))
        if of_path[number] == len(rows):
            keys.append(key)
            rows.append(TreeRow(key, Figures(count=0, total_ns=0, self_ns=0, elements=0, bytes=0, flops=0), place))
        totals = rows[of_path[number]].totals
        totals["count"] += stats.count
        totals["total_ns"] += stats.total_ns - path.again_ns
        totals["self_ns"] += stats.self_ns
        totals["elements"] += stats.total_elements
        totals["bytes"] += stats.total_bytes
        totals["flops"] += stats.total_flops
    return rows


def _walked(paths: Mapping[int, Path]) -> list[int]:
    """Return the paths in an order in which each path comes before the paths below it."""
    inside: dict[int, list[int]] = defaultdict(list)
    for number in sorted(paths, reverse=True):
        inside[paths[number].parent if paths[number].parent in paths else -1].append(number)
    order: list[int] = []
    to_visit = inside[-1]
    while to_visit:
        order.append(to_visit.pop())
        to_visit += inside[order[-1]]
    return order
