"""The execution graph of this process, without a daemon: the seed profiler's reports on it.

Owns: which rows of the own segment become one node, a node's own time, these reports. Must not know: how a graph is
recorded. Invariants: nodes have the keys of `brickd tree --json`, and brickd makes the same nodes from one segment; the
critical path is brickd's; nothing in the segment changes.
"""

from __future__ import annotations

from brick_agent._compat.profiler.critical_path import Piece, critical
from brick_agent._compat.profiler.own_segment import OwnTotals, Path
from brick_agent._compat.profiler.plain_tree import micros, plain_tree, stated_or_measured_ns
from brick_agent._compat.profiler.report import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

# enum brick_unit
TICKS, NS, BOUND, LAUNCHED, SHAPED, RETURNED, NEEDS, DEFINED, ENDED, NODE, TASK = 0, 1, 3, 4, 5, 9, 10, 11, 12, 13, 14
_DIRECTIONS = {6: "H2D", 7: "D2H", 8: "D2D"}
_TIMES = (TICKS, NS, BOUND, NODE)
_OTHER = "other"  # the name of number 0: an unknown file
_COLOURS = {
    "layer": "lightgray", "brick": "lightblue", "function": "plum", "task": "moccasin", "kernel": "palegreen",
    "transfer": "khaki",
}  # fmt: skip
_RULE = "─" * 50
_SHOWN = 5


class ExecutionGraph:
    """The nodes that this process recorded, and reports on them.

    `nodes` have the keys of `brickd tree --json`.

    >>> profiler = brick.BrickProfiler()
    >>> profiler.enable_graph()
    >>> profiler.graph_record_brick(brick.BrickId.RmsNorm, 50_000, elements=4096)
    'RmsNorm'
    >>> print(profiler.execution_graph().to_ascii_tree(), end="")
    RmsNorm  50.0µs (4096 elem)
    """

    def __init__(self, totals: OwnTotals) -> None:
        self.nodes: list[dict[str, Any]] = []
        self._needs: dict[int, list[str]] = {}
        self._first: dict[str, int] = {}  # the first node of each name
        self._beside: dict[tuple[int | None, str], int] = {}  # the first one below each node
        self._read(totals.paths)
        pieces = list(self._pieces())
        self._own_ns = [piece.own_ns for piece in pieces]
        self._critical = critical(pieces)

    def __repr__(self) -> str:
        return f"ExecutionGraph({len(self.nodes)} node{'' if len(self.nodes) == 1 else 's'})"

    # ---- nodes -------------------------------------------------------------------------------------------------------

    def _read(self, paths: Mapping[int, Path]) -> None:
        there = set()
        for number in sorted(paths, reverse=True):
            if number in there or paths[number].stats.count:
                there |= {number, paths[number].parent}
        homes: dict[int, int] = {}
        places: dict[tuple[int, str, int, object], int] = {}
        for number in sorted(there & paths.keys()):  # the place around one may be newer than what was read
            path = paths[number]
            home = homes.get(path.parent, -1)
            if path.unit in (SHAPED, RETURNED, NEEDS, DEFINED, ENDED, TASK):
                self._mark(home, path)
                continue
            above = paths.get(path.parent)
            if above is not None and (above.unit, above.layer, above.stats.name) == (NODE, path.layer, path.stats.name):
                homes[number] = home  # a span below a node of its name is that node
            else:
                homes[number] = self._place(places, home, path)
            self._add(homes[number], path)

    def _place(self, places: dict[tuple[int, str, int, object], int], home: int, path: Path) -> int:
        name = path.stats.name
        if path.layer >= 0 and (home < 0 or self.nodes[home]["layer"] != path.layer):
            layer = (home, f"Layer {path.layer}", path.layer, "layer")
            home = (
                places[layer]
                if layer in places
                else places.setdefault(layer, self._new("layer", layer[1], home, path.layer))
            )
        key = home, name, path.layer
        kind = "brick" if path.unit in _TIMES else "kernel" if path.unit == LAUNCHED else "transfer"
        if kind == "brick" and (*key, "brick") not in places:
            marks = [places[*key, unit] for unit in (LAUNCHED, *_DIRECTIONS) if (*key, unit) in places]
            if len(marks) == 1 and path.unit != TICKS:
                return marks[0]  # the time of that launch or transfer
        what = kind if kind == "brick" else path.unit
        if (*key, what) not in places:
            places[*key, what] = self._new(kind, name, home, path.layer)
        return places[*key, what]

    def _new(self, kind: str, name: str, home: int, layer: int) -> int:
        number = len(self.nodes)
        self.nodes.append({
            "id": number, "parent": None if home < 0 else home, "kind": kind, "name": name, "order": number,
            "layer": None if layer < 0 else layer, "given": False, "count": 0, "total_ns": None, "stated": None,
            "elements": 0, "bytes": 0, "flops": 0.0, "kernel": None, "transfer": None, "definitions": [], "task": None,
        })  # fmt: skip
        return number

    def _add(self, number: int, path: Path) -> None:
        node, of = self.nodes[number], path.stats
        if path.unit == LAUNCHED:
            node["kernel"] = {"launches": of.count, "shapes": []}
        elif path.unit in _DIRECTIONS:
            node["transfer"] = {
                "direction": _DIRECTIONS[path.unit],
                "transfers": of.count,
                "moved_bytes": of.total_bytes,
            }
        elif path.unit == NODE:
            node["stated"] = {"count": of.count, "total_ns": of.total_ns, "elements": of.total_elements}
        elif of.count:
            node["count"] += of.count
            node["total_ns"] = (node["total_ns"] or 0) + of.total_ns - path.again_ns
            node["given"] = path.unit != TICKS
        node["elements"] += 0 if path.unit == NODE and node["count"] else of.total_elements
        node["bytes"] += of.total_bytes
        node["flops"] += of.total_flops

    def _mark(self, home: int, path: Path) -> None:
        if home < 0:
            return
        node, of = self.nodes[home], path.stats
        if path.unit == SHAPED and node["kernel"] is not None:
            node["kernel"]["shapes"].append({"text": of.name, "launches": of.count})
            node["kernel"]["shapes"].sort(key=lambda shape: (-shape["launches"], shape["text"]))
        elif path.unit == NEEDS:
            self._needs.setdefault(home, []).append(of.name)
        elif path.unit == DEFINED:
            node["kind"], file = "function", None if of.name == _OTHER else of.name
            node["definitions"].append({"file": file, "line": None if path.layer < 0 else path.layer})
        elif path.unit == TASK:
            node["kind"], node["task"] = "task", {"polls": of.total_elements, "yields": of.total_bytes}

    # ---- times -------------------------------------------------------------------------------------------------------

    def _time_ns(self, node: Mapping[str, Any]) -> int | None:
        """The measured time, or else the stated one."""
        if node["total_ns"] is not None:
            return int(node["total_ns"])
        return (node["stated"] or {}).get("total_ns") or None

    def _pieces(self) -> Iterator[Piece]:
        below: list[list[int]] = [[] for _ in self.nodes]
        for node in self.nodes:
            self._first.setdefault(node["name"], node["id"])
            if node["kind"] != "layer":
                self._beside.setdefault((node["parent"], node["name"]), node["id"])
            if node["parent"] is not None:
                below[node["parent"]].append(node["id"])
        host_ns = [0.0] * len(self.nodes)
        own_ns = [0.0] * len(self.nodes)
        device = [node["given"] or node["kind"] in ("kernel", "transfer") for node in self.nodes]
        for number in reversed(range(len(self.nodes))):
            inside = sum(host_ns[each] for each in below[number])
            time_ns = self._time_ns(self.nodes[number]) or 0
            own_ns[number] = time_ns if device[number] else max(0, time_ns - inside)
            host_ns[number] = 0.0 if device[number] else max(time_ns, inside)
        for node in self.nodes:
            number = node["id"]
            found = [self._named(name, number) for name in self._needs.get(number, ())]
            needs = tuple(sorted(each for each in found if each is not None))
            yield Piece(node["parent"], own_ns[number], device[number], needs)

    def _named(self, name: str, number: int) -> int | None:
        """The nearest node of that name: a sibling, or a sibling of an ancestor, or the first one."""
        at: int | None = number
        while at is not None:
            at = self.nodes[at]["parent"]
            if (at, name) in self._beside:
                return self._beside[at, name]
        return self._first.get(name)

    # ---- reports -----------------------------------------------------------------------------------------------------

    def to_ascii_tree(self) -> str:
        """The tree as in the seed's book, in the order of recording."""
        return plain_tree(self.nodes, printable)

    def to_dot(self) -> str:
        """The graph in DOT, with one colour for each kind of node."""
        lines = ["digraph ExecutionGraph {", '  node [shape="box", style="filled"];']
        for node in self.nodes:
            time_ns = stated_or_measured_ns(node)
            label = printable(node["name"]).replace("\\", "\\\\").replace('"', '\\"').replace("&", "&amp;")
            label += "" if time_ns is None else f"\\n{micros(time_ns)}"
            lines.append(f'  n{node["id"]} [label="{label}", fillcolor="{_COLOURS[node["kind"]]}"];')
            if node["parent"] is not None:
                lines.append(f"  n{node['parent']} -> n{node['id']};")
            for name in self._needs.get(node["id"], ()):
                if (needed := self._named(name, node["id"])) is not None:
                    lines.append(f'  n{needed} -> n{node["id"]} [label="DependsOn", style="dashed"];')
        return "\n".join([*lines, "}", ""])

    def kernel_nodes(self) -> list[dict[str, Any]]:
        """The launched kernels."""
        return [node for node in self.nodes if node["kernel"] is not None]

    def critical_path(self) -> tuple[list[int], int]:
        """The ids of the nodes on the critical path that have a time, and its length in ns."""
        return [number for number in self._critical.path if self._own_ns[number]], round(self._critical.length_ns)

    def compute_slack(self) -> dict[int, int]:
        """The slack of each node with a time: by how many ns it may grow before the critical path."""
        slack = self._critical.slack_ns
        return {node["id"]: round(slack[node["id"]]) for node in self.nodes if self._time_ns(node) is not None}

    def critical_path_summary(self) -> str:
        """The critical path as text, and the nodes with the most slack."""
        path, length_ns = self.critical_path()
        lines = [f"Critical Path: {length_ns / 1e6:.2f}ms ({len(path)} nodes)", _RULE]
        for place, number in enumerate(path):
            branch = "└" if place == len(path) - 1 else "│" if place else "┌"
            lines.append(f"{branch} {printable(self.nodes[number]['name'])} ({micros(self._own_ns[number])})")
        slack = sorted(((ns, -number) for number, ns in self.compute_slack().items() if ns), reverse=True)
        if slack:
            lines += ["", "Parallelization Opportunities (high slack):"]
            lines += [f"  {printable(self.nodes[-n]['name'])} slack={micros(ns)}" for ns, n in slack[:_SHOWN]]
        return "".join(f"{line}\n" for line in lines)

    def roofline_distance(self, peak_tflops: float, bandwidth_gb_s: float) -> dict[int, float]:
        """The distance of each kernel with FLOP and bytes from the roofline, 0 (on it) to 1, by id."""
        distances = {}
        for node in self.kernel_nodes():
            time_ns = self._time_ns(node)
            if not (time_ns and node["flops"] and node["bytes"]):
                continue
            bound = min(peak_tflops, node["flops"] / node["bytes"] * bandwidth_gb_s / 1e3)
            if bound > 0:
                distances[node["id"]] = 1 - min(node["flops"] / time_ns / 1e3 / bound, 1.0)
        return distances
