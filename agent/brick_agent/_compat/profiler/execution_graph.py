"""The predecessor's reports on the execution graph of this process, without a daemon.

Owns: the reports on the graph. Must not know: how a graph is recorded, which rows of the segment become one node
(`graph_nodes`). Invariants: nodes have the order and the keys of `brickd tree --json`; nothing in the segment changes.
"""

from __future__ import annotations

import math

from brick_agent._compat.profiler.graph_needs import GraphNeeds
from brick_agent._compat.profiler.graph_nodes import GraphNodes
from brick_agent._compat.profiler.graph_rows import rows_of
from brick_agent._compat.profiler.local_totals import shown
from brick_agent._compat.profiler.own_segment import OwnTotals
from brick_agent._compat.profiler.plain_tree import micros, plain_tree, stated_or_measured_ns
from brick_agent._compat.profiler.report import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_COLOURS = {
    "layer": "lightgray", "brick": "lightblue", "function": "plum", "task": "moccasin", "kernel": "palegreen",
    "transfer": "khaki",
}  # fmt: skip
_RULE = "─" * 50
_SHOWN = 5


def _peak(name: str, value: float) -> float:
    try:
        peak = math.nan if isinstance(value, str) else float(value)
    except Exception:
        peak = math.nan
    if 0 < peak < math.inf:
        return peak
    raise ValueError(f"{name} must be a finite number above 0, not {shown(value)}")


class ExecutionGraph:
    """The recorded nodes of this process, and reports on these nodes.

    `nodes` have the keys of `brickd tree --json`.

    >>> profiler = brick.BrickProfiler()
    >>> profiler.enable_graph()
    >>> profiler.graph_record_brick(brick.BrickId.RmsNorm, 50_000, elements=4096)
    'RmsNorm'
    >>> print(profiler.execution_graph().to_ascii_tree(), end="")
    RmsNorm  50.0µs (4096 elem)
    """

    def __init__(self, totals: OwnTotals) -> None:
        order = GraphNodes(rows_of(totals.paths), layers=True).order
        graph = GraphNeeds(order)
        self.nodes: list[dict[str, Any]] = [
            {"id": number, "parent": graph.parent(number), "layer": node.layer, **node.document()}
            for number, node in enumerate(order)
        ]
        self._needs = [graph.needed(number) for number in range(len(order))]
        self._timed = [graph.is_timed(number) for number in range(len(order))]
        self._own_ns = graph.own_ns
        self._critical = graph.critical

    def __repr__(self) -> str:
        return f"ExecutionGraph({len(self.nodes)} node{'' if len(self.nodes) == 1 else 's'})"

    def to_ascii_tree(self) -> str:
        """Return the tree as in the predecessor's book, in the order of recording."""
        return plain_tree(self.nodes, printable)

    def to_dot(self) -> str:
        """Return the graph in DOT, with one colour for each kind of node."""
        lines = ["digraph ExecutionGraph {", '  node [shape="box", style="filled"];']
        for node in self.nodes:
            time_ns = stated_or_measured_ns(node)
            label = printable(node["name"]).replace("\\", "\\\\").replace('"', '\\"').replace("&", "&amp;")
            label += "" if time_ns is None else f"\\n{micros(time_ns)}"
            lines.append(f'  n{node["id"]} [label="{label}", fillcolor="{_COLOURS[node["kind"]]}"];')
            if node["parent"] is not None:
                lines.append(f"  n{node['parent']} -> n{node['id']};")
            for needed in self._needs[node["id"]]:
                lines.append(f'  n{needed} -> n{node["id"]} [label="DependsOn", style="dashed"];')
        return "\n".join([*lines, "}", ""])

    def kernel_nodes(self) -> list[dict[str, Any]]:
        """The launched kernels."""
        return [node for node in self.nodes if node["kernel"] is not None]

    def critical_path(self) -> tuple[list[int], int]:
        """Return the ids of the timed nodes on the critical path, and the length of the path in ns."""
        return [number for number in self._critical.path if self._own_ns[number]], round(self._critical.length_ns)

    def compute_slack(self) -> dict[int, int]:
        """Return the slack of each node with a time: how many ns longer it may take."""
        slack = self._critical.slack_ns
        return {number: round(slack[number]) for number, is_timed in enumerate(self._timed) if is_timed}

    def critical_path_summary(self) -> str:
        """Return the critical path as text, and the nodes with the most slack."""
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
        """Return how far each kernel is from the roofline, by the kernel's id: from 0 (on the roofline) to 1."""
        peak_tflops = _peak("peak_tflops", peak_tflops)
        bandwidth_gb_s = _peak("bandwidth_gb_s", bandwidth_gb_s)
        distances = {}
        for node in self.kernel_nodes():
            time_ns = node["total_ns"]
            if not (time_ns and node["flops"] and node["bytes"]):
                continue
            bound = min(peak_tflops, node["flops"] / node["bytes"] * bandwidth_gb_s / 1e3)
            if bound > 0:
                distances[node["id"]] = 1 - min(node["flops"] / time_ns / 1e3 / bound, 1.0)
        return distances
