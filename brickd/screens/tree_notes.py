"""The texts about kernels, transfers, functions, tasks, and the critical path.

Owns: these texts, and the screen of the critical path. Must not know: segments, the drawing of trees. Invariants:
`named` returns a string that is escaped later, when it is drawn. All other lines are escaped here. A line says how many
entries are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from brickd.base import escape, units
from brickd.screens import brick_columns, wording
from brickd.screens import table as tables
from brickd.screens.screen import Screen
from brickd.screens.table import Column, Figure

Entry = dict[str, Any]

# The most entries of each kind on a screen; JSON has all entries.
_SHAPES, _NEEDED, _RETURNED, _STEPS, _SLACK, _UNRESOLVED, _CIRCLES = 3, 3, 3, 20, 5, 3, 3

_NAMED = (
    Figure(Column("BRICK"), "name", str),
    Figure(Column("LAYER", "right"), "layer", wording.identifier),
    Figure(Column("INSIDE"), "inside", lambda name: name or "-"),
)
_PATH = (
    Figure(Column("OWN", "right"), "own_ns", units.duration),
    Figure(Column("SHARE", "right"), "share_percent", units.percent),
    *_NAMED,
)
_LOOSE = (
    Figure(Column("SLACK", "right"), "slack_ns", units.duration),
    Figure(Column("TOTAL", "right"), "total_ns", units.duration),
    *_NAMED,
)


def named(node: Entry) -> str:
    """Return the name of a node with its details, except the times."""
    name = brick_columns.name(node)
    if node["kernel"] is not None:
        return "  ".join([name, *_kernel(node, node["kernel"])])
    if node["transfer"] is not None:
        moved = node["transfer"]
        took_back = f", {_of(moved['returned'], moved['transfers'])} returned" if moved["returned"] else ""
        return f"{moved['direction']} {name}  {units.size(moved['moved_bytes'])}{took_back}"
    parts = [name]
    if node["definitions"]:
        first, *others = node["definitions"]
        line = "" if first["line"] is None else f":{first['line']}"
        if first["file"] is not None:
            parts.append(f"({first['file']}{line}{f', …{len(others)} more' if others else ''})")
    if node["task"] is not None:
        polls, yields = node["task"]["polls"], node["task"]["yields"]
        parts.append(f" {units.many(polls, 'poll')}, {units.many(yields, 'yield')}")
    if node["elements"]:
        parts.append(f" ({units.count(node['elements'])} elem)")
    if node["needs"]:
        parts.append(f" needs {_needed(node['needs'])}")
    return " ".join(parts)


def _needed(needs: Sequence[Entry]) -> str:
    more = len(needs) - _NEEDED
    return ", ".join([need["name"] for need in needs[:_NEEDED]] + ([f"…{units.count(more)} more"] if more > 0 else []))


def shaped(node: Entry) -> str:
    """Return the name of a kernel with its most frequent shape, without its source."""
    first = [shape["text"].removesuffix(f" @{shape['source_hash']}") for shape in node["kernel"]["shapes"][:1]]
    return "  ".join([brick_columns.name(node), *first])


def counted(node: Entry) -> int | None:
    """Return how often a node was launched, how often it moved data, or how often it completed."""
    if node["kernel"] is not None:
        return int(node["kernel"]["launches"])
    if node["transfer"] is not None:
        return int(node["transfer"]["transfers"])
    return None if node["kind"] == "layer" else int(node["count"])


def _kernel(node: Entry, kernel: Entry) -> Iterator[str]:
    shapes, launches, timed = kernel["shapes"], kernel["launches"], kernel["timed"]
    if len(shapes) == 1 and shapes[0]["launches"] == launches:
        yield shapes[0]["text"]
    elif shapes:
        parts = [f"{shape['text']} {units.count(shape['launches'])}×" for shape in shapes[:_SHAPES]]
        if more := len(shapes) - len(parts) + kernel["hidden_shapes"]:
            parts.append(f"…{units.many(more, 'more shape')}")
        if without := kernel["launches_without_shape"]:
            parts.append(f"{units.count(without)} without shape")
        yield ", ".join(parts)
    if node["flops_per_second"] is not None:
        yield f"{units.count(node['flops_per_second'])}FLOP/s"
    if node["flops_per_byte"] is not None:
        yield f"{node['flops_per_byte']:.3g} FLOP/byte"
    if 0 < timed < launches:
        yield f"({_of(timed, launches)} timed)"


def _of(part: int, whole: int) -> str:
    return f"{units.count(part)} of {units.count(whole)}"


def notes(document: Entry, screen: Screen) -> list[str]:
    """Return the lines below a tree, ready to print; [] if there are neither launches nor transfers."""
    lines = []
    if (slowest := document["slowest_kernel"]) is not None:
        lines.append(_slowest(slowest))
        if slowest["source_hash"] is not None:
            lines.append(f"to print the source of this kernel: brickd source {slowest['source_hash']}")
    returned = document["returned"]
    lines += [_returned(each) for each in returned[:_RETURNED]]
    lines += wording.more(len(returned) - _RETURNED, "more returned", several="more returned")
    if document["stray_marks"]:
        marks = units.many(document["stray_marks"], "launch, transfer or need", "launches, transfers and needs")
        lines.append(f"not shown, because their place in the tree is unknown: {marks}")
    if document["refused_marks"]:
        marks = units.many(document["refused_marks"], "launch, transfer or need", "launches, transfers and needs")
        lines.append(f"not shown, because their workers had no room to count them: {marks}  brickd doctor")
    return [escape.text(line, screen.width) for line in lines]


def _slowest(slowest: Entry) -> str:
    inside = _inside(slowest)
    launches = units.many(slowest["launches"], "launch", "launches")
    time = units.duration(slowest["time_ns"])
    if slowest["by"] == "brick":
        return f"slowest kernel: {slowest['name']}{inside}, whose brick took {time}; no kernel reported a time"
    if slowest["timed"] < slowest["launches"]:
        launches = f"{_of(slowest['timed'], slowest['launches'])} launches"
    return f"slowest kernel: {slowest['name']}{inside}, {'≤ ' if slowest['bounded'] else ''}{time} in {launches}"


def _inside(each: Entry) -> str:
    layer = "" if each["layer"] is None else f", layer {each['layer']}"
    return layer if each["inside"] is None else f" in {each['inside']}{layer}"


def _returned(each: Entry) -> str:
    way = each["name"] if each["from"] is None else f"{each['to']}→{each['from']}→{each['to']}"
    moved = f"{units.size(each['returned_bytes'])}, {_of(each['returned'], each['transfers'])} returned"
    return f"{way}{_inside(each)}: {moved}"


def critical(document: Entry, screen: Screen) -> list[str]:
    """Return the lines about the critical path and the slack, ready to print.

    Other lines name the nodes that need each other in a circle.
    """
    path = document["critical_path"]
    length_ns = path["length_ns"]
    # Workers run in parallel, so the sum of their times is not wall time.
    of = f" of {document['workers']:,} workers added up" if document["workers"] > 1 else ""
    of_all = f"{units.duration(length_ns)} of {units.duration(document['recorded_ns'])} recorded"
    lines = [escape.text(f"critical path{of}{brick_columns.over(document)}: {of_all}", screen.width)]
    lines += _steps([step for step in path["steps"] if step["own_ns"]], length_ns, screen)
    lines += _slack(document, screen)
    for circle in path["cycles"][:_CIRCLES]:
        names = ", ".join(each["name"] for each in circle[:_STEPS])
        rest = f", …{units.count(len(circle) - _STEPS)} more" if len(circle) > _STEPS else ""
        lines.append(
            escape.text(f"these need each other in a circle, and count as one node: {names}{rest}", screen.width)
        )
    lines += wording.more(len(path["cycles"]) - _CIRCLES, "more circle")
    for each in document["unresolved_needs"][:_UNRESOLVED]:
        line = f"{each['name']}{_inside(each)} needs {each['needs']}, which was not recorded"
        lines.append(escape.text(line, screen.width))
    if (more := len(document["unresolved_needs"]) - _UNRESOLVED) > 0:
        lines.append(f"…{units.count(more)} more that were not recorded")
    return lines


def _steps(steps: Sequence[Entry], length_ns: int, screen: Screen) -> Iterator[str]:
    largest = sorted(range(len(steps)), key=lambda number: (-steps[number]["own_ns"], number))[:_STEPS]
    shown = [steps[n] | {"share_percent": 100 * steps[n]["own_ns"] / length_ns} for n in sorted(largest)]
    yield from tables.figures(_shown(_PATH, shown), shown, screen.width)
    if len(steps) > len(shown):
        rest_ns = sum(step["own_ns"] for step in steps) - sum(step["own_ns"] for step in shown)
        yield f"…{units.count(len(steps) - len(shown))} more: {units.duration(rest_ns)}"


def _slack(document: Entry, screen: Screen) -> Iterator[str]:
    nodes = document["nodes"]
    loose = [node for node in nodes if node["slack_ns"] and node["total_ns"]]
    loose.sort(key=lambda node: (-node["slack_ns"], node["id"]))
    if not loose:
        yield escape.text("no brick has slack: each brick waits for the brick before it", screen.width)
        return
    inside = {node["id"]: node["name"] for node in nodes}
    shown = [node | {"inside": inside.get(node["parent"])} for node in loose[:_SLACK]]
    yield from tables.figures(_shown(_LOOSE, shown), shown, screen.width)
    if len(loose) > len(shown):
        yield f"…{units.count(len(loose) - len(shown))} more with slack"
    if any(node["slack_ns"] > node["total_ns"] for node in shown):
        yield escape.text(
            "slack is how much longer a brick may take without a longer critical path; it may exceed the total of"
            " the brick",
            screen.width,
        )


def _shown(figures: Sequence[Figure], entries: Sequence[Entry]) -> list[Figure]:
    """Return the columns of figures. The column of layers is left out if it is empty."""
    layered = any(entry["layer"] is not None for entry in entries)
    return [figure for figure in figures if layered or figure.key != "layer"]
