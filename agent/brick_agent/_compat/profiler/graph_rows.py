"""The rows of this process's graph: paths of its own segment that are one place or one mark.

Owns: which rows share a node, which are there, their order. Must not know: nodes, reports. Invariants: the row around
another comes before it; these are the rules of `brickd/model/calltree/merge.py`.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from dataclasses import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from brick_agent._compat.profiler.own_segment import Path
    from brick_agent._compat.profiler.stats import BrickStats

# enum brick_unit
TICKS, NS, BOUND, LAUNCHED, SHAPED, NEEDS, DEFINED, ENDED, NODE, TASK = 0, 1, 3, 4, 5, 10, 11, 12, 13, 14
DIRECTIONS = {6: "H2D", 7: "D2H", 8: "D2D"}
TIMES = (TICKS, NS, BOUND)
_MARKS = (LAUNCHED, *DIRECTIONS)
_PLACES = (*TIMES, *_MARKS, NODE)


@dataclass(slots=True)
class Row:
    """Paths of one name, layer and unit in one place."""

    above: int  # the row around it; -1: none
    name: str
    layer: int | None
    unit: int
    stats: BrickStats
    again_ns: int
    group: list[int]  # the rows of the same place, name and layer, with itself, by unit
    home: int = -1  # the row whose node it shares; -1: it is a mark
    there: bool = False  # it or something in it was recorded
    first: int = sys.maxsize  # its place in the order of recording


def rows_of(paths: Mapping[int, Path]) -> list[Row]:
    """The rows, with their homes."""
    rows = _rows(paths)
    around_times = {row.above for row in rows if row.unit in TIMES}
    for group in {id(row.group): row.group for row in rows}.values():
        group.sort(key=lambda number: rows[number].unit)
        _share(rows, group, around_times)
    _find(rows)
    return rows


def _rows(paths: Mapping[int, Path]) -> list[Row]:
    """The rows; the one around another comes before it."""
    rows: list[Row] = []
    known: dict[tuple[int, str, int | None, int], int] = {}
    of_path: dict[int, int] = {}
    groups: dict[tuple[int, str, int | None], list[int]] = defaultdict(list)
    for number in sorted(paths):
        path, name = paths[number], paths[number].stats.name
        above, layer = of_path.get(path.parent, -1), None if path.layer < 0 else path.layer
        around = rows[above] if above >= 0 else None
        if (
            around is not None
            and path.unit in TIMES
            and (around.name, around.layer, around.unit) == (name, layer, NODE)
        ):
            above = around.above  # a span in the node of its name is that node
        key = above, name, layer, path.unit
        if key in known:
            rows[known[key]].stats.add(path.stats)
            rows[known[key]].again_ns += path.again_ns
        else:
            known[key] = len(rows)
            group = groups[key[:3]]
            group.append(len(rows))
            rows.append(Row(*key, path.stats, path.again_ns, group))
        of_path[number] = known[key]
    for place, number in enumerate(_walked(paths)):
        row = rows[of_path[number]]
        row.first = min(row.first, place)
    return rows


def _walked(paths: Mapping[int, Path]) -> list[int]:
    """The paths, each before those in it."""
    inside: dict[int, list[int]] = defaultdict(list)
    for number in sorted(paths, reverse=True):
        inside[paths[number].parent if paths[number].parent in paths else -1].append(number)
    order: list[int] = []
    to_visit = inside[-1]
    while to_visit:
        order.append(to_visit.pop())
        to_visit += inside[order[-1]]
    return order


def _share(rows: list[Row], group: list[int], around_times: set[int]) -> None:
    """Decide which rows of a group share a node: a time, and the mark that says what took it."""
    for number in group:
        rows[number].home = number if rows[number].unit in _PLACES else -1
    counted = [number for number in group if rows[number].stats.count]
    marks = [n for n in group if rows[n].unit in _MARKS]
    marks = [n for n in marks if n in counted] or marks
    given = [n for n in counted if rows[n].unit in (NS, BOUND)]
    empty = [n for n in group if rows[n].unit == TICKS and n not in counted]
    if len(marks) == 1 and given:
        rows[given[0]].home = marks[0]
    elif not marks and given and empty and empty[0] not in around_times:
        rows[empty[0]].home = given[0]
    shares = [n for n in counted if rows[n].unit in TIMES] or (marks if len(marks) == 1 else [])
    for number in group:
        if rows[number].unit == NODE and shares:
            rows[number].home = rows[shares[0]].home


def _find(rows: list[Row]) -> None:
    """Find the rows that are there; a node with a need alone is, too."""
    for row in reversed(rows):
        row.there |= row.unit in _PLACES and row.stats.count > 0
        if row.there and row.above >= 0:
            rows[row.above].there = True
    for row in rows:
        if row.unit == NEEDS and row.stats.count and not marked_rows(rows, row):
            above = row.above
            while above >= 0 and not rows[above].there:
                rows[above].there = True
                above = rows[above].above


def marked_rows(rows: list[Row], mark: Row) -> list[int]:
    """The rows to which a mark may belong: the row around it, and those of its group."""
    if mark.above < 0:
        return []
    return [number for number in (mark.above, *rows[mark.above].group) if rows[number].there]
