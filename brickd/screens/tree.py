"""The screen of a call tree.

Owns: how a tree is drawn. Must not know: segments, the meaning of a node's figures. Invariants: The figures are left of
the tree, so that a deep tree never pushes them off the screen. Branches are drawn if there is room. A node that is too
deep for branches shows its depth as a number. No line is wider than the screen.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from brickd.base import escape, units
from brickd.screens import brick_columns, tree_notes, wording
from brickd.screens import table as tables
from brickd.screens.screen import Screen
from brickd.screens.table import Column, Figure

# The width reserved for a name at any depth, and for a kernel without its shape. The figures get the rest of the line.
_NAME_WIDTH, _KERNEL_WIDTH = 16, 26
_FIGURES_WIDTH = 26
_INDENT = 4
# At least _FEWEST levels get branches. Figures are omitted to make room for up to _WANTED levels. If the screen has no
# limit, _MOST levels get branches.
_FEWEST, _WANTED, _MOST = 3, 6, 24

_FIGURES = (
    Figure(Column("TOTAL", "right"), "total_ns", units.duration),
    Figure(Column("SHARE", "right", spare=2), "share_percent", units.percent),
    Figure(Column("SELF", "right"), "self_ns", units.duration),
    Figure(Column("COUNT", "right", spare=1), "count", units.count),  # a launch may have only this figure
    Figure(Column("MEDIAN", "right", spare=4), "p50_ns", units.duration),
    Figure(Column("P99", "right", spare=5), "p99_ns", units.duration),
)
_LAYER = Figure(Column("LAYER", "right", spare=3), "layer", wording.identifier)
_LAYERS = Figure(Column("LAYERS", "right", spare=3), "layers", lambda layers: units.count(layers or None))
_GIVEN = Figure(Column("GIVEN", "right", spare=4), "given", lambda given: "given" if given else "")

Node = dict[str, Any]


class TreeLine(NamedTuple):
    """A line of the drawing: a node, or the number of omitted nodes below a node.

    Attributes:
        depth: the depth of the node or of the omitted nodes.
        last: whether this is the last line below its parent.
        text: the raw text after the branch.
        node: the node itself; for omitted nodes, it has only their self time.
    """

    depth: int
    last: bool
    text: str
    node: Node


def render(document: dict[str, Any], screen: Screen, *, critical: bool = False, more: Sequence[str] = ()) -> list[str]:
    """Return the lines of the screen."""
    if not document["workers"]:
        return [wording.no_workers(document)]
    if not document["nodes"] and not document["hidden_nodes"]:
        return [brick_columns.nothing(document)]
    if critical:
        return tree_notes.critical(document, screen)
    return _tree(document, screen, more) + tree_notes.notes(document, screen)


def _tree(document: dict[str, Any], screen: Screen, more: Sequence[str]) -> list[str]:
    lines = list(lines_of(document))
    name_width = max(map(_name_width, lines))
    room, levels = None, _MOST
    if screen.width is not None:
        most = screen.width - _FIGURES_WIDTH - 2
        wanted = _INDENT * min(max(line.depth for line in lines), _WANTED) + name_width
        room = max(_FIGURES_WIDTH, screen.width - max(wanted, _shapes_width(lines, most)) - 2)
    numbers = tables.figures(_figures(document, more), (line.node for line in lines), room)
    width = max(map(len, numbers))
    if screen.width is not None:
        levels = max(_FEWEST, (screen.width - width - 2 - name_width) // _INDENT)
    name_room = None if screen.width is None else screen.width - width - 2
    drawn = [f"BRICK{brick_columns.over(document)}", *_drawn(lines, levels, name_room)]
    finished = [
        escape.text(f"{left.ljust(width)}  {right}", screen.width) for left, right in zip(numbers, drawn, strict=True)
    ]
    return finished + brick_columns.bounds(document["nodes"], screen)


def _name_width(line: TreeLine) -> int:
    return min(escape.width(escape.text(line.text)), _KERNEL_WIDTH if line.node.get("kernel") else _NAME_WIDTH)


def _shapes_width(lines: Iterable[TreeLine], most: int) -> int:
    """Return the width of the widest line that shows a kernel with its first shape.

    Lines that are wider than `most` do not count.
    """
    kernels = (line for line in lines if line.node.get("kernel"))
    widths = (_INDENT * line.depth + escape.width(escape.text(tree_notes.shaped(line.node))) for line in kernels)
    return max((width for width in widths if width <= most), default=0)


def _figures(document: dict[str, Any], more: Sequence[str]) -> list[Figure]:
    """Return the columns to the left of the tree. Layers and reported times get a column only if a node has them."""
    figures = brick_columns.with_optional(_FIGURES, more)
    if any(node["layers"] for node in document["nodes"]):
        figures.append(_LAYER if document["layers"] else _LAYERS)
    if any(node["given"] for node in document["nodes"]):
        figures.append(_GIVEN)
    return figures


def lines_of(document: dict[str, Any]) -> Iterator[TreeLine]:
    """Return the nodes. If a node has omitted children, a line with their number comes after the others."""
    last = {node["parent"]: node["id"] for node in document["nodes"]}
    above: list[Node] = []
    for node in document["nodes"]:
        yield from _left_out(above, node["depth"])
        some_left_out = bool(above and above[-1]["hidden_nodes"])
        yield TreeLine(
            node["depth"],
            last[node["parent"]] == node["id"] and not some_left_out,
            tree_notes.named(node),
            node | {"count": tree_notes.counted(node)},
        )
        above.append(node)
    yield from _left_out(above, 0)
    if document["hidden_nodes"]:
        yield _left(0, document)


def _left_out(above: list[Node], depth: int) -> Iterator[TreeLine]:
    """Remove from `above` the nodes that are at this depth or deeper.

    Yield a line for each of these nodes that has omitted children.
    """
    while above and above[-1]["depth"] >= depth:
        node = above.pop()
        if node["hidden_nodes"]:
            yield _left(node["depth"] + 1, node)


def _left(depth: int, of: Node) -> TreeLine:
    return TreeLine(depth, True, f"…{units.count(of['hidden_nodes'])} more", {"self_ns": of["hidden_self_ns"]})


def _drawn(lines: Iterable[TreeLine], levels: int, room: int | None) -> Iterator[str]:
    """Return each line with its branch. Lines below the last drawn level have their depth as a number instead.

    The name of a brick that does not fit next to its branch keeps both ends. A kernel keeps its beginning, because its
    shape is more useful than the hash of its source at the end.
    """
    open_branches: list[bool] = []  # whether the branch at each depth continues
    for line in lines:
        del open_branches[line.depth :]
        open_branches.append(not line.last)
        branch = ""
        if line.depth > 0:
            branch = "`-- " if line.last else "|-- "
        if line.depth > levels:
            branch = f"…{line.depth} ".rjust(_INDENT * (levels - 1)) + branch
        else:
            branch = "".join("|   " if more else "    " for more in open_branches[1:-1]) + branch
        if room is None or line.node.get("kernel"):
            yield branch + escape.text(line.text)
        else:
            yield branch + escape.both_ends(line.text, room - len(branch))
