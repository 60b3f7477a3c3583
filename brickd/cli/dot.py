"""The tree as a graph: text in the language of Graphviz, for `dot -Tsvg`.

Owns: how nodes and edges look, how a name becomes a label. Must not know: how places are merged, files. Invariants: Any
name is shown as plain text in the picture: a name cannot form an escape of the language or an HTML entity. The same
document always gives the same text. The omitted nodes below a node are drawn as one node, which shows how many were
omitted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from brickd.base import escape, units

Node = Mapping[str, Any]

# For each kind of node: its colour and its shape.
_KINDS = {
    "layer": ("#d8dee4", "folder"),
    "brick": ("#b6e3ff", "box"),
    "function": ("#d8b9ff", "component"),
    "task": ("#ffd8b5", "cds"),
    "kernel": ("#aceebb", "ellipse"),
    "transfer": ("#fae17d", "hexagon"),
}
# The label of an edge, for each kind of child node: a brick contains bricks, launches kernels, makes transfers.
_EDGES = {
    "kernel": 'label="launches", style="bold", color="#1a7f37"',
    "transfer": 'label="moves", style="dotted", color="#9a6700"',
}
_CONTAINS = 'color="#6e7781"'
_NEEDS = 'label="needs", style="dashed", color="#8250df", constraint=false'
_LEFT = 'shape="plaintext", fontcolor="#6e7781"'
_CRITICAL = 'penwidth=3, color="#cf222e"'
_NAME_WIDTH = 60


def dot(document: Mapping[str, Any]) -> str:
    """Return the graph of a document of the view `tree`."""
    nodes: Sequence[Node] = document["nodes"]
    lines = [
        "digraph brickd {",
        '  graph [rankdir="LR", ranksep=0.4, nodesep=0.15];',
        '  node [fontname="sans-serif", fontsize=11, style="filled"];',
        '  edge [fontname="sans-serif", fontsize=9];',
    ]
    for node in nodes:
        lines += _node(node)
    if document["hidden_nodes"]:
        lines.append(_left("left", document["hidden_nodes"]))
    return "\n".join([*lines, "}", ""])


def _node(node: Node) -> Iterator[str]:
    colour, form = _KINDS[node["kind"]]
    more = f", {_CRITICAL}" if node["critical"] else ""
    yield f'  n{node["id"]} [label={_quoted(_label(node))}, shape="{form}", fillcolor="{colour}"{more}];'
    if node["parent"] is not None:
        yield f"  n{node['parent']} -> n{node['id']} [{_EDGES.get(node['kind'], _CONTAINS)}];"
    for need in node["needs"]:
        if need["id"] is not None:
            yield f"  n{node['id']} -> n{need['id']} [{_NEEDS}];"
    if node["hidden_nodes"]:
        yield _left(f"left{node['id']}", node["hidden_nodes"])
        yield f"  n{node['id']} -> left{node['id']} [{_CONTAINS}];"


def _left(name: str, nodes: int) -> str:
    return f"  {name} [label={_quoted([f'…{units.count(nodes)} more'])}, {_LEFT}];"


def _label(node: Node) -> list[str]:
    name = node["name"] if node["transfer"] is None else f"{node['transfer']['direction']} {node['name']}"
    lines = [name]
    if node["total_ns"] is not None:
        lines.append(f"{'≤ ' if node['bounded'] else ''}{units.duration(node['total_ns'])}")
    if node["kernel"] is not None:
        lines.append(units.many(node["kernel"]["launches"], "launch", "launches"))
        shapes = node["kernel"]["shapes"]
        lines += [shape["text"] for shape in shapes[:1]]
        if more := len(shapes[1:]) + node["kernel"]["hidden_shapes"]:
            lines.append(f"…{units.many(more, 'more shape')}")
    if node["transfer"] is not None:
        moved = node["transfer"]
        lines.append(f"{units.size(moved['moved_bytes'])} in {units.count(moved['transfers'])}")
    return lines


def _quoted(lines: Sequence[str]) -> str:
    r"""Quote a label of several lines.

    >>> _quoted(['a"b\\N', "<b>&amp;"])
    '"a\\"b\\\\N\\n<b>&amp;amp;"'
    """
    return '"' + r"\n".join(_text(line) for line in lines) + '"'


def _text(line: str) -> str:
    # In a quoted label, a backslash begins an escape and an ampersand begins an entity.
    visible = escape.text(line, _NAME_WIDTH)
    return visible.replace("\\", "\\\\").replace('"', '\\"').replace("&", "&amp;")
