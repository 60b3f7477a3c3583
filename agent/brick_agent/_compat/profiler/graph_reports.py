"""The reports of ExecutionGraph as methods of a profiler, under the predecessor's names.

Owns: which reports a profiler has. Must not know: how a graph is recorded. Invariant: a report changes nothing.
"""

from __future__ import annotations

from brick_agent._compat.profiler.execution_graph import ExecutionGraph
from brick_agent._compat.profiler.graph import Graphed


class GraphReports(Graphed):
    """Reports on the execution graph: a tree, a picture and figures."""

    def execution_graph(self) -> ExecutionGraph:
        """Return this process's graph since the profiler's creation or the last graph_clear().

        >>> brick.BrickProfiler().execution_graph().nodes
        []
        """
        return ExecutionGraph(self._graphed.read())

    def graph_to_ascii_tree(self) -> str:
        """Return the graph as a tree, as in the predecessor's book.

        >>> profiler = brick.BrickProfiler()
        >>> profiler.enable_graph()
        >>> profiler.graph_record_brick(brick.BrickId.RmsNorm, 50_000, elements=4096)
        'RmsNorm'
        >>> print(profiler.graph_to_ascii_tree(), end="")
        RmsNorm  50.0µs (4096 elem)
        """
        return self.execution_graph().to_ascii_tree()

    def graph_to_dot(self) -> str:
        """Return the graph in DOT.

        >>> brick.BrickProfiler().graph_to_dot().startswith("digraph ExecutionGraph")
        True
        """
        return self.execution_graph().to_dot()

    def critical_path(self) -> tuple[list[int], int]:
        """Return the ids of the nodes on the critical path, and the length of the path in nanoseconds.

        >>> brick.BrickProfiler().critical_path()
        ([], 0)
        """
        return self.execution_graph().critical_path()

    def compute_slack(self) -> dict[int, int]:
        """Return the slack of each node by id: how many ns longer it may take.

        >>> brick.BrickProfiler().compute_slack()
        {}
        """
        return self.execution_graph().compute_slack()

    def critical_path_summary(self) -> str:
        """Return the critical path as text.

        >>> print(brick.BrickProfiler().critical_path_summary().splitlines()[0])
        Critical Path: 0.00ms (0 nodes)
        """
        return self.execution_graph().critical_path_summary()

    def roofline_distance(self, peak_tflops: float, bandwidth_gb_s: float) -> dict[int, float]:
        """Return how far each kernel is from the roofline, by the kernel's id: from 0 (on the roofline) to 1.

        >>> brick.BrickProfiler().roofline_distance(83.0, 1008.0)
        {}
        """
        try:
            return self.execution_graph().roofline_distance(peak_tflops, bandwidth_gb_s)
        except ValueError as error:
            self._local.refuse("peaks", str(error))
            return {}
