"""The plain tree of an execution graph, as in the predecessor's book.

Owns: the glyphs and the order of the tree, the text of a node. Must not know: where the nodes come from. They have the
keys of `brickd tree --json`, because `brickd/cli/plain_tree.py` is a link to this file. Invariants: the same nodes give
the same text; a time given by the host is preferred to a measured time, because measured times differ from run to run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

_TITLE = "Execution Graph"  # the title above several roots
_DRAWN = 64  # the number of indented levels; on deeper levels, the depth is written before the name of a node


def plain_tree(nodes: Sequence[Mapping[str, Any]], escaped: Callable[[str], str]) -> str:
    """Return the tree of these nodes, parents first; `escaped` makes a name printable."""
    below: dict[int | None, list[Mapping[str, Any]]] = defaultdict(list)
    for node in sorted(nodes, key=lambda node: (node["order"], node["id"])):
        below[node["parent"]].append(node)
    roots = below[None]
    alone = len(roots) == 1
    lines = [_TITLE] if len(roots) > 1 else []
    # Each entry: the text before the branch, whether the node is the last child of its parent, its depth, and the node.
    to_visit = [("", node is roots[-1], 0 if alone else 1, node) for node in reversed(roots)]
    while to_visit:
        before, last, depth, node = to_visit.pop()
        branch = before + ("└── " if last else "├── ") if depth else ""
        lines.append(f"{branch}{f'…{depth} ' if depth > _DRAWN else ''}{escaped(text(node))}")
        inside = before + ("    " if last else "│   ") if 0 < depth < _DRAWN else before
        children = below[node["id"]]
        to_visit += [(inside, child is children[-1], depth + 1, child) for child in reversed(children)]
    return "".join(f"{line}\n" for line in lines)


def text(node: Mapping[str, Any]) -> str:
    """Return a node's name and its known figures."""
    return "  ".join([_name(node), *_details(node)])


def stated_or_measured_ns(node: Mapping[str, Any]) -> int | None:
    """Return the time that the host gave, or the measured time if the host gave none. None if both are unknown."""
    stated = node["stated"]
    total_ns: int | None = stated["total_ns"] if stated and stated["total_ns"] else node["total_ns"]
    return total_ns


def micros(ns: float) -> str:
    """Format a time as in the predecessor's book."""
    return f"{ns / 1e3:.1f}µs"


def _name(node: Mapping[str, Any]) -> str:
    if node["transfer"] is not None:
        return f"{node['transfer']['direction']} {node['name']}"
    for definition in node["definitions"][:1]:
        line = "" if definition["line"] is None else f":{definition['line']}"
        return str(node["name"]) if definition["file"] is None else f"{node['name']} ({definition['file']}{line})"
    return str(node["name"])


def _details(node: Mapping[str, Any]) -> Iterator[str]:
    if node["kind"] == "layer":
        return
    if node["kernel"] is not None:
        yield from (shape["text"].split(" @")[0] for shape in node["kernel"]["shapes"][:1])
    if node["transfer"] is not None:
        yield f"{node['transfer']['moved_bytes']}B"
    if node["task"] is not None:
        yield f"{node['task']['polls']} polls, {node['task']['yields']} yields"
    elements = (node["stated"] or {}).get("elements") or node["elements"]
    times = [] if (ns := stated_or_measured_ns(node)) is None else [micros(ns)]
    if parts := times + ([f"({elements} elem)"] if elements else []):
        yield " ".join(parts)
    if (count := _count(node)) > 1:
        yield f"×{count}"


def _count(node: Mapping[str, Any]) -> int:
    if node["kernel"] is not None:
        return int(node["kernel"]["launches"])
    if node["transfer"] is not None:
        return int(node["transfer"]["transfers"])
    return int(node["stated"]["count"]) if node["stated"] else int(node["count"])
