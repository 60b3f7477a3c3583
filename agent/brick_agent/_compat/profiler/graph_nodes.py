"""The nodes of this process's graph, from the rows of its own segment.

Owns: the keys of a node, its own time, which node a needed name means. Must not know: reports, how a graph is recorded.
Invariants: brickd makes the same nodes from one segment (`brickd/model/calltree`), with the same keys; parents come
first; the time is linear in rows and needs, and in the depth of needed names.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field

from brick_agent._compat.profiler.critical_path import Piece
from brick_agent._compat.profiler.graph_rows import (
    DEFINED,
    DIRECTIONS,
    ENDED,
    LAUNCHED,
    NEEDS,
    NODE,
    NS,
    SHAPED,
    TASK,
    TICKS,
    TIMES,
    Row,
    marked_rows,
    rows_of,
)  # fmt: skip

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from brick_agent._compat.profiler.own_segment import Path

_OTHER = "other"  # the name of number 0: a file that is not known


@dataclass(slots=True)
class Place:
    """A node, its rows, and its times as brickd adds them up."""

    node: dict[str, Any]
    above: int  # the node around it; -1: none
    layer: int | None  # its own, or that around it
    level: int = -1  # the nearest node around it that is no layer
    rows: list[Row] = field(default_factory=list)
    needs: set[str] = field(default_factory=set)
    time: Row | None = None  # that has its time: measured, else stated
    given: bool = False  # its time is a device's, or was measured elsewhere
    drawn: bool = False  # its host draws it, and nothing of it was measured
    unit: int = 0  # of its time, or what its mark says
    self_ns: int = 0
    stated_ns: int = 0  # its own, if its time is stated; then what is stated in it, up to the next spans
    ended_ns: int = 0
    host_ns: int = 0
    total_ns: int = 0


def places_of(paths: Mapping[int, Path]) -> list[Place]:
    """The nodes, parents first."""
    places = _placed(rows_of(paths))
    _add_up(places)
    for place in places:
        known = place.time is not None or place.node["kind"] == "layer"
        place.node["total_ns"] = place.total_ns if known else None
        if place.node["kind"] == "brick":
            marked = "task" if place.node["task"] else "function" if place.node["definitions"] else "brick"
            place.node["kind"] = marked
    return places


def pieces_of(places: list[Place], needs: list[list[int]]) -> list[Piece]:
    """The nodes as pieces of work; device work does not reduce the own time of the brick that launched it."""
    below = [0] * len(places)
    for place in places:
        if place.above >= 0:
            below[place.above] += place.host_ns
    pieces = []
    for number, place in enumerate(places):
        own_ns = 0
        if place.given:
            own_ns = place.total_ns
        elif place.time is not None:
            own_ns = max(place.self_ns, place.host_ns - below[number])
        pieces.append(Piece(None if place.above < 0 else place.above, own_ns, place.given, tuple(needs[number])))
    return pieces


def needs_of(places: list[Place]) -> list[list[int]]:
    """The nodes that each node needs.

    A name means the nearest node: a sibling (of the same layer first), else a sibling of its parent, and so on, else
    the first; of several the largest.
    """
    first: dict[str, int] = {}
    nearest: dict[tuple[int, str], int] = {}
    same_layer: dict[tuple[int, str, int | None], int] = {}
    for number in _by_size(places):
        place = places[number]
        if place.node["kind"] != "layer":
            name = place.node["name"]
            first.setdefault(name, number)
            nearest.setdefault((place.level, name), number)
            same_layer.setdefault((place.level, name, place.layer), number)

    def meant(name: str, place: Place) -> int | None:
        level, layer = place.level, place.layer
        while (level, name) not in nearest:
            if level < 0:
                return first.get(name)
            level = places[level].level
        return same_layer.get((level, name, layer), nearest[level, name])

    found = [{meant(name, place) for name in place.needs} for place in places]
    return [sorted(number for number in each if number is not None) for each in found]


def _by_size(places: list[Place]) -> list[int]:
    """The order of brickd's tree: each node before those in it, the largest of these first."""

    def rank(number: int) -> tuple[int, int, str, int, int]:
        place = places[number]
        launches = place.node["kernel"]["launches"] if place.node["kernel"] is not None else 0
        layer = -1 if place.node["layer"] is None else place.node["layer"]
        unit = place.unit
        return -place.total_ns, -launches, place.node["name"], layer, unit

    inside: list[list[int]] = [[] for _ in (*places, None)]  # the last one: of no node
    for number, place in enumerate(places):
        inside[place.above].append(number)
    order: list[int] = []
    to_visit = sorted(inside[-1], key=rank, reverse=True)
    while to_visit:
        order.append(to_visit.pop())
        to_visit += sorted(inside[order[-1]], key=rank, reverse=True)
    return order


# ---- nodes -----------------------------------------------------------------------------------------------------------


def _placed(rows: list[Row]) -> list[Place]:
    places: list[Place] = []
    of_home: dict[int, int] = {}
    inside: list[int] = []  # the node of each row, else that around it
    layers: dict[tuple[int, int], int] = {}
    for row in rows:
        around = inside[row.above] if row.above >= 0 else -1
        if row.home >= 0 and row.there and row.home not in of_home:
            parent, layer = around, row.layer
            if layer is not None and layer != (places[around].layer if around >= 0 else None):
                if (around, layer) not in layers:
                    layers[around, layer] = _new(places, around, "layer", f"Layer {layer}", layer)
                parent = layers[around, layer]
            of_home[row.home] = _new(places, parent, "brick", row.name, layer)
        inside.append(of_home.get(row.home, around) if row.home >= 0 else around)
    for row in rows:
        if row.home in of_home:
            places[of_home[row.home]].rows.append(row)
    nodes = {home: places[number] for home, number in of_home.items()}
    for place in reversed(places):
        _fill(place, rows)
        if place.above >= 0 and places[place.above].node["kind"] == "layer":
            layer_node = places[place.above].node
            layer_node["order"] = min(layer_node["order"], place.node["order"])
    for row in rows:
        if row.home < 0 and row.stats.count:
            _mark(rows, row, nodes)
    return places


def _new(places: list[Place], above: int, kind: str, name: str, layer: int | None) -> int:
    number = len(places)
    node: dict[str, Any] = {
        "id": number, "parent": None if above < 0 else above, "kind": kind, "name": name, "order": sys.maxsize,
        "layer": layer, "given": False, "count": 0, "total_ns": None, "stated": None, "elements": 0, "bytes": 0,
        "flops": 0.0, "kernel": None, "transfer": None, "definitions": [], "task": None,
    }  # fmt: skip
    place = Place(node, above, layer)
    if above >= 0:
        place.layer = places[above].layer if layer is None else layer
        place.level = places[above].level if places[above].node["kind"] == "layer" else above
    places.append(place)
    return number


def _mark(rows: list[Row], mark: Row, of_home: Mapping[int, Place]) -> None:
    """Add a mark to its node."""
    around, of = rows[mark.above] if mark.above >= 0 else None, mark.stats
    if around is None:
        return
    if mark.unit == SHAPED:
        kernel = of_home[around.home].node["kernel"] if around.unit == LAUNCHED and around.home in of_home else None
        if kernel is not None:
            kernel["shapes"].append({"text": of.name, "launches": of.count})
            kernel["shapes"].sort(key=lambda shape: (-shape["launches"], shape["text"]))
        return
    candidates = marked_rows(rows, mark)
    place = of_home.get(rows[candidates[0]].home) if candidates and around.unit in (*TIMES, NODE) else None
    if place is None:
        return
    if mark.unit == NEEDS:
        place.needs.add(of.name)
    elif mark.unit == DEFINED:
        file = None if of.name == _OTHER else of.name
        defined = {"file": file, "line": mark.layer}
        if defined not in place.node["definitions"]:
            place.node["definitions"].append(defined)
            place.node["definitions"].sort(key=str)
    elif mark.unit in (TASK, ENDED):
        task = place.node["task"] = place.node["task"] or {"polls": 0, "ended": 0, "yields": 0}
        spans = place.node["count"]
        polls, yields = (of.total_elements, of.total_bytes) if mark.unit == TASK else (spans, max(0, spans - of.count))
        task["polls"] += polls
        task["yields"] += yields
        task["ended"] += of.count if mark.unit == ENDED else 0


def _fill(place: Place, rows: list[Row]) -> None:
    """Fill in what the rows of a node say."""
    node, counted = place.node, [row for row in place.rows if row.stats.count]
    launched = next((row.stats for row in counted if row.unit == LAUNCHED), None)
    moved = next((row for row in counted if row.unit in DIRECTIONS), None)
    stated = next((row for row in counted if row.unit == NODE), None)
    measured = [row for row in place.rows if row.unit in TIMES]
    measured = [row for row in measured if row.stats.count] or measured
    place.time = measured[0] if measured else stated if stated is not None and stated.stats.total_ns else None
    place.drawn = launched is None and moved is None and not measured
    place.given = place.time is not None and not place.drawn and (place.time is stated or place.time.unit != TICKS)
    if stated is not None:
        of = stated.stats
        node["stated"] = {"count": of.count, "total_ns": of.total_ns, "elements": of.total_elements}
        place.stated_ns = of.total_ns if place.time is stated else 0
    if node["kind"] == "layer":
        return
    time = place.time.stats if place.time is not None else None
    place.unit = next(row.unit for row in place.rows if rows[row.home] is row)
    if place.time is not None:
        place.unit = NS if place.given and place.time is stated else place.time.unit
    node["order"] = min(row.first for row in place.rows if row.unit == NODE or rows[row.home] is row)
    node["given"] = place.given or (place.drawn and time is not None)
    node["count"] = time.count if time is not None else 0
    if moved is not None:
        node["kind"], node["bytes"] = "transfer", moved.stats.total_bytes
        node["transfer"] = {
            "direction": DIRECTIONS[moved.unit],
            "transfers": moved.stats.count,
            "moved_bytes": moved.stats.total_bytes,
        }
        return
    if launched is not None:
        node["kind"], node["kernel"] = "kernel", {"launches": launched.count, "shapes": []}
    for each in (launched, time if time is not None or stated is None else stated.stats):
        if each is not None:
            node["elements"] += each.total_elements
            node["bytes"] += each.total_bytes
            node["flops"] += each.total_flops


def _add_up(places: list[Place]) -> None:
    below: list[list[Place]] = [[] for _ in places]
    for place in places:
        if place.above >= 0:
            below[place.above].append(place)
    for number in reversed(range(len(places))):
        place, inside = places[number], below[number]
        of = place.time
        total_ns = of.stats.total_ns - of.again_ns if of is not None else 0
        stated_ns, host_ns = sum(each.stated_ns for each in inside), sum(each.host_ns for each in inside)
        if of is not None and place.stated_ns:
            place.self_ns = max(0, total_ns - sum(each.total_ns for each in inside))
            place.stated_ns = stated_ns + place.self_ns
        elif of is None:
            place.stated_ns = stated_ns
        else:  # what is stated in a span is not its own
            place.self_ns = max(0, of.stats.self_ns - stated_ns)
        place.ended_ns = place.self_ns + sum(each.ended_ns for each in inside if not each.given)
        if of is None:
            place.host_ns = host_ns if place.drawn else 0
            place.total_ns = sum(each.total_ns for each in inside) if place.drawn else 0
        elif place.drawn:
            place.total_ns, place.host_ns = total_ns, max(total_ns, host_ns)
        elif place.given:
            place.total_ns = total_ns
        else:  # a span that is still open has given nothing to its own total, and those in it have to theirs
            place.host_ns = place.total_ns = max(total_ns, place.ended_ns)
