"""The execution graph under the predecessor's names: launches, transfers, needs, scopes.

    profiler.enable_graph()
    profiler.graph_push_scope(ExecutionNode.Layer(0))
    profiler.graph_record_brick(BrickId.RmsNorm, 50_000, 4096)
    profiler.graph_record_kernel("rmsnorm_kernel", ptx_hash, (16, 1, 1), (256, 1, 1), 1024)
    profiler.graph_pop_scope()

Owns: what each call records, and which calls are refused. Must not know: the form of the graph (`execution_graph`),
which scopes are open in a thread or task (`scopes`). A node is identified by its name and path: a million launches of
one kernel at one path are one node, which counts them.

A node and its time are recorded as marks (brick_graph.h). Statistics never include marks, neither here nor in brickd.
So a brick that was timed and also has a node is counted once. Recording a graph changes no total, whatever the mode of
the profiler.

Differences from the predecessor: A scope of a brick, a function or a task for which no time is given is timed until the
scope ends, unless the mode is Off. A kernel recorded after a brick in the same scope, span and layer counts as launched
by that brick; in the predecessor, the two are siblings. When the timer of a brick stops, this also counts as a record
of the brick, unless kernels were recorded while the brick was timed. Ids are names. "Calls" and "contains" are the same
relation here. No edges follow from the order of the records, because this order means nothing if work is repeated. Only
graph_add_dependency() adds edges.

Invariants: while the graph is disabled, nothing is recorded and calls return None; no call raises (except with
BRICKD_STRICT=1); a refused call leaves no scope open; each thread and each task has its own scopes.
"""

from __future__ import annotations

from contextlib import ExitStack

from brick_agent._compat.profiler.graph_records import GraphRecords
from brick_agent._compat.profiler.local_totals import amount, shown
from brick_agent._compat.profiler.node import ExecutionNode
from brick_agent._compat.profiler.scopes import Scope, scopes_here, set_scopes
from brick_agent._compat.profiler.sync_modes import SyncMode
from brick_agent._core import _node, _node_defined, _node_task, brick, kernel, layer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import SupportsFloat, SupportsIndex

    from brick_agent._compat.profiler.brick_ids import BrickId
    from brick_agent._compat.profiler.node import Extent, Node
    from brick_agent._core import Brick

DEPTH_MAX = 256
LAYER_MAX = 16_777_214


class Graphed(GraphRecords):
    """Scopes, and the bricks and launches in them."""

    # ---- scopes ------------------------------------------------------------------------------------------------------

    def graph_push_scope(self, node: Node) -> str | None:
        """Open a scope and return its name; records go below this node until the scope is popped.

        >>> profiler = brick.BrickProfiler()
        >>> profiler.enable_graph()
        >>> profiler.graph_push_scope(brick.ExecutionNode.Layer(0))
        'Layer 0'
        >>> profiler.graph_push_scope(brick.ExecutionNode.Brick(brick.BrickId.RmsNorm, elements=4096))
        'RmsNorm'
        >>> profiler.graph_record_kernel("rmsnorm_kernel", 0xCAFE, (16, 1, 1), (256, 1, 1), 1024)
        'rmsnorm_kernel'
        >>> profiler.graph_pop_scope(), profiler.graph_pop_scope()
        ('RmsNorm', 'Layer 0')
        """
        if not self._graphing:
            return None
        if len(scopes_here().open) >= DEPTH_MAX:
            self._local.refuse(
                "scopes too deep", f"at most {DEPTH_MAX} nested scopes may be open: pop one before you push"
            )
            return None
        scope = self._opened(node)
        if scope is None:
            return None
        set_scopes(scopes_here().pushed(scope))
        return scope.name

    def graph_pop_scope(self) -> str | None:
        """Close the last pushed scope and return its name; if no scope is open, count this and return None.

        >>> profiler = brick.BrickProfiler()
        >>> profiler.graph_pop_scope() is None
        True
        """
        scope, others = scopes_here().popped(self)
        if scope is None:
            if self._graphing:
                self._local.refuse(
                    "scopes popped twice",
                    "no scope is open here: a scope must be popped once, by the thread or task that pushed it",
                )
            return None
        set_scopes(others)
        scope.end()
        return scope.name

    def graph_is_scope_balanced(self) -> bool:
        """Return whether this thread or task has popped all scopes that it pushed.

        >>> brick.BrickProfiler().graph_is_scope_balanced()
        True
        """
        return not any(each.owner is self for each in scopes_here().open)

    def graph_clear(self) -> None:
        """Pop all scopes of this context and begin a new graph; the segment keeps earlier records.

        >>> profiler = brick.BrickProfiler()
        >>> profiler.enable_graph()
        >>> profiler.graph_push_scope(brick.ExecutionNode.Function("decode"))
        'decode'
        >>> profiler.graph_clear()
        >>> profiler.graph_is_scope_balanced()
        True
        """
        with ExitStack() as ends:  # if one scope raises at its end (in strict mode), the other scopes still end
            ends.callback(self._graphed.begin)
            for scope in scopes_here().open:
                if scope.owner is self:
                    ends.callback(scope.end)
            while not self.graph_is_scope_balanced():
                set_scopes(scopes_here().popped(self)[1])
            set_scopes(scopes_here().launched_by(self, None))

    def _launches(self, of: Brick | None) -> None:
        """Make a brick the launcher of the next kernels.

        The brick was stopped, or was started without a span. With None, the open scope becomes the launcher.
        """
        set_scopes(scopes_here().launched_by(self, of))

    def _launched_here(self) -> bool:
        """Return whether the innermost span itself launched the last kernel.

        If so, kernels are recorded inside that span.
        """
        return scopes_here().has_launched(self)

    def _opened(self, node: Node) -> Scope | None:
        """Open a scope completely, or refuse it and return None."""
        scope = Scope(self)
        try:
            name = self._open(scope, node)
        except BaseException:  # strict mode, or an interrupt
            scope.close()
            raise
        if name is None:
            return None
        scope.name = name
        return scope

    def _open(self, scope: Scope, node: Node) -> str | None:
        match node:
            case ExecutionNode.Layer(index):
                if isinstance(index, bool) or (number := amount(index)) is None or number > LAYER_MAX:
                    self._local.refuse("layers", f"a layer is an integer from 0 to {LAYER_MAX}, not {shown(index)}")
                    return None
                scope.enter(layer(index))
                return f"Layer {index}"
            case ExecutionNode.Brick(id, timing_ns, elements):
                of = self._brick_of(id)
                return None if of is None else self._open_node(scope, of, timing_ns, elements)
            case ExecutionNode.Kernel():
                return self._launch(scope, node)
            case ExecutionNode.Transfer(src, dst, size, direction, timing_ns):
                moved = self.graph_record_transfer(src, dst, size, direction, timing_ns)
                if moved is not None:
                    scope.begin(brick(moved))
                return moved
            case ExecutionNode.Function(name, file, line):
                if (of := self._named(name)) is None:
                    return None
                opened = self._open_node(scope, of, None, 0)
                _node_defined(file, line)
                return opened
            case ExecutionNode.AsyncTask(name, polls, yields, poll_ns):
                if (of := self._named(name)) is None:
                    return None
                opened = self._open_node(scope, of, poll_ns, 0)
                _node_task(polls, yields)
                return opened
        self._local.refuse("nodes", f"a scope is a node such as ExecutionNode.Layer(0), not {shown(node)}")
        return None

    def _open_node(
        self, scope: Scope, of: Brick, timing_ns: SupportsFloat | SupportsIndex | None, elements: SupportsIndex
    ) -> str:
        given = timing_ns is not None and not (isinstance(timing_ns, (int, float)) and not timing_ns)
        timed = not given and self._mode is not SyncMode.Off
        if not timed:
            _node(of, 0 if timing_ns is None else timing_ns, elements, 0, 0)
        scope.begin(of, elements=elements, timed=timed)
        return of.name

    def _launch(self, scope: Scope, node: ExecutionNode.Kernel) -> str | None:
        """Record a launch, and leave its node open."""
        if not isinstance(node.name, str):
            self._local.refuse("node names", f"a kernel's name is a text, not {shown(node.name)}")
            return None
        scopes, of = scopes_here(), brick(node.name)
        launcher = scopes.launcher(self)
        if launcher is not None:
            scope.begin(launcher)
        elif not scopes.has_launched(self):
            set_scopes(scopes.launching(self))
        kernel(node.name, node.grid, node.block, node.shared_mem, source=node.ptx_hash)
        if node.timing_ns is not None:
            _node(of, node.timing_ns, 0, *node.work())
        scope.begin(of)
        return node.name

    # ---- nodes -------------------------------------------------------------------------------------------------------

    def graph_record_brick(
        self, id: BrickId | int | str, timing_ns: SupportsFloat | SupportsIndex, elements: SupportsIndex = 0
    ) -> str | None:
        """Record the time of a brick in the open scope; return its name.

        >>> profiler = brick.BrickProfiler()
        >>> profiler.enable_graph()
        >>> profiler.graph_record_brick(brick.BrickId.RmsNorm, 50_000, elements=4096)
        'RmsNorm'
        """
        of = self._brick_of(id) if self._graphing else None
        if of is None:
            return None
        _node(of, timing_ns, elements, 0, 0)
        set_scopes(scopes_here().launched_by(self, of))
        return of.name

    def graph_record_kernel(
        self, name: str, ptx_hash: int | None, grid: Extent, block: Extent, shared_mem: SupportsIndex = 0
    ) -> str | None:
        """Record the launch of a kernel.

        The launcher is the last brick that was recorded or stopped in the scope, or else the scope or the span itself.
        Returns the name of the kernel. A ptx_hash of 0 or None means unknown.

        >>> profiler = brick.BrickProfiler()
        >>> profiler.graph_record_kernel("rmsnorm_kernel", None, (16, 1, 1), (256, 1, 1)) is None  # not enabled
        True
        """
        if not self._graphing:
            return None
        scope = self._opened(ExecutionNode.Kernel(name, ptx_hash, grid, block, shared_mem))
        if scope is None:
            return None
        scope.close()
        return name
