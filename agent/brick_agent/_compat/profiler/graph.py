"""The execution graph under the seed profiler's names: launches, transfers, needs, scopes.

    profiler.enable_graph()
    profiler.graph_push_scope(ExecutionNode.Layer(0))
    profiler.graph_record_brick(BrickId.RmsNorm, 50_000, 4096)
    profiler.graph_record_kernel("rmsnorm_kernel", ptx_hash, (16, 1, 1), (256, 1, 1), 1024)
    profiler.graph_pop_scope()

Owns: the open scopes of each thread and task, and refusals. Must not know: the form of the graph, which
`execution_graph` owns. A node is identified by its name and path: a million launches of one kernel at one path are one
node that counts them.

A node and its time are marks (brick_graph.h), and no statistics include marks, here or in brickd. So a brick that was
also timed counts once, and a graph changes no total, whether the profiler is enabled, disabled or Off.

Differences from the seed. A scope of a brick, a function or a task without a given time has the time for which it is
open, unless the mode is Off. A kernel that is recorded after a brick in the same scope was launched by that brick; the
seed makes them siblings. Ids are names. Calling and containing are one relation. Order makes no edge, because it has no
meaning where work repeats; graph_add_dependency() adds edges.

Invariants: while the graph is disabled, nothing is recorded and calls return None; no call raises (except with
BRICKD_STRICT=1); a refused call leaves no scope open; each thread and each task has its own scopes.
"""

from __future__ import annotations

import os
from contextvars import ContextVar
from dataclasses import dataclass

from brick_agent._compat.profiler.execution_graph import ExecutionGraph
from brick_agent._compat.profiler.local_totals import amount, member, now_ns, shown
from brick_agent._compat.profiler.node import ExecutionNode, TransferDirection
from brick_agent._compat.profiler.own_segment import Recorded
from brick_agent._compat.profiler.timing import SyncMode, Timing, by_name
from brick_agent._core import (
    _node,
    _node_begin,
    _node_defined,
    _node_end,
    _node_task,
    brick,
    kernel,
    layer,
    needs,
    transfer,
)  # fmt: skip
from brick_agent._kernel_source import source

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from os import PathLike
    from typing import SupportsFloat, SupportsIndex

    from brick_agent._compat.profiler.brick_ids import BrickId
    from brick_agent._compat.profiler.node import Extent, Node
    from brick_agent._core import Brick, Layer

DEPTH_MAX = 256
LAYER_MAX = 16_777_214


@dataclass(slots=True)
class _Scope:
    """An open scope."""

    owner: Graphed
    name: str
    of: Layer | tuple[Brick, ...]  # ends with the scope: a layer, or the nodes that were opened for it
    since_ns: int | None = None  # when it was opened, if its time is the time for which it is open
    elements: SupportsIndex = 0

    def end(self) -> None:
        if not isinstance(self.of, tuple):
            self.of.__exit__(None, None, None)
            return
        for node in reversed(self.of):
            _node_end(node)
        if self.since_ns is not None:
            _node(self.of[0], now_ns() - self.since_ns, self.elements, 0, 0)


def _name(of: object) -> str:
    """The name itself, or the agent's name for an object that is not a string."""
    return of if isinstance(of, str) else f"<{type(of).__name__}>"


# Never changed in place: a task inherits the scopes that are open around it, and must not end them for others.
_scopes: ContextVar[tuple[_Scope, ...]] = ContextVar("brick_agent_scopes", default=())
# The brick that was recorded last outside of scopes, then in each open scope; it launches the kernels that follow.
_launchers: ContextVar[tuple[Brick | None, ...]] = ContextVar("brick_agent_launchers", default=(None,))


def _forked() -> None:
    _scopes.set(())
    _launchers.set((None,))


os.register_at_fork(after_in_child=_forked)


class Graphed(Timing):
    """Launches, transfers and needs, in scopes."""

    _graphing = False

    def __init__(self, sync: Callable[[], object] | None, mode: SyncMode | str) -> None:
        super().__init__(sync, mode)
        self._graphed = Recorded(marks=True)

    def enable_graph(self) -> None:
        """Record the graph from now on, whether the profiler itself is enabled or not.

        >>> profiler = brick.BrickProfiler()
        >>> profiler.enable_graph()
        """
        self._graphing = True

    def disable_graph(self) -> None:
        """Stop recording the graph; open scopes may still be popped.

        >>> brick.BrickProfiler().disable_graph()
        """
        self._graphing = False

    def is_graph_enabled(self) -> bool:
        """Whether the graph is recorded.

        >>> brick.BrickProfiler().is_graph_enabled()
        False
        """
        return self._graphing

    # ---- scopes ------------------------------------------------------------------------------------------------------

    def graph_push_scope(self, node: Node) -> str | None:
        """Open a scope: records are below this node until it is popped. Returns its name.

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
        open_now = _scopes.get()
        if len(open_now) >= DEPTH_MAX:
            self._local.refuse("scopes too deep", f"no more than {DEPTH_MAX} scopes may be open in each other")
            return None
        scope = self._opened(node)
        if scope is None:
            return None
        _scopes.set((*open_now, scope))
        _launchers.set((*_launchers.get(), None))
        return scope.name

    def graph_pop_scope(self) -> str | None:
        """Close the last pushed scope and return its name; None and counted: none is open.

        >>> profiler = brick.BrickProfiler()
        >>> profiler.graph_pop_scope() is None
        True
        """
        open_now = _scopes.get()
        mine = [place for place, each in enumerate(open_now) if each.owner is self]
        if not mine:
            if self._graphing:
                self._local.refuse(
                    "scopes popped twice", "a scope is popped by the thread or task that pushed it, once"
                )
            return None
        place, launchers = mine[-1], _launchers.get()
        _scopes.set(open_now[:place] + open_now[place + 1 :])
        _launchers.set(launchers[: place + 1] + launchers[place + 2 :])
        open_now[place].end()
        return open_now[place].name

    def graph_is_scope_balanced(self) -> bool:
        """Whether this thread or task has popped all scopes that it pushed.

        >>> brick.BrickProfiler().graph_is_scope_balanced()
        True
        """
        return not any(each.owner is self for each in _scopes.get())

    def graph_clear(self) -> None:
        """Pop all scopes that are open here, and begin a new graph. The records stay in the segment.

        >>> profiler = brick.BrickProfiler()
        >>> profiler.enable_graph()
        >>> profiler.graph_push_scope(brick.ExecutionNode.Function("decode"))
        'decode'
        >>> profiler.graph_clear()
        >>> profiler.graph_is_scope_balanced()
        True
        """
        while not self.graph_is_scope_balanced():
            self.graph_pop_scope()
        self._graphed.begin()

    def _opened(self, node: Node) -> _Scope | None:
        match node:
            case ExecutionNode.Layer(index):
                if isinstance(index, bool) or (number := amount(index)) is None or number > LAYER_MAX:
                    self._local.refuse("layers", f"a layer is an integer from 0 to {LAYER_MAX}, not {shown(index)}")
                    return None
                around = layer(index)
                around.__enter__()
                return _Scope(self, f"Layer {index}", around)
            case ExecutionNode.Brick(id, timing_ns, elements):
                of = self._brick_of(id)
                return None if of is None else self._begin_node(of, timing_ns, elements)
            case ExecutionNode.Kernel():
                return self._launched(node)
            case ExecutionNode.Transfer(src, dst, size, direction, timing_ns):
                moved = self.graph_record_transfer(src, dst, size, direction, timing_ns)
                if moved is None:
                    return None
                _node_begin(moved)
                return _Scope(self, moved, (brick(moved),))
            case ExecutionNode.Function(name, file, line):
                if (of := self._named(name)) is None:
                    return None
                scope = self._begin_node(of, None, 0)
                _node_defined(file, line)
                return scope
            case ExecutionNode.AsyncTask(name, polls, yields, poll_ns):
                if (of := self._named(name)) is None:
                    return None
                scope = self._begin_node(of, poll_ns, 0)
                _node_task(polls, yields)
                return scope
        self._local.refuse("nodes", f"a scope is a node, as ExecutionNode.Layer(0) is, not {shown(node)}")
        return None

    def _begin_node(
        self, of: Brick, timing_ns: SupportsFloat | SupportsIndex | None, elements: SupportsIndex
    ) -> _Scope:
        given = timing_ns is not None and not (isinstance(timing_ns, (int, float)) and not timing_ns)
        timed = not given and self._mode is not SyncMode.Off
        if not timed:
            _node(of, 0 if timing_ns is None else timing_ns, elements, 0, 0)
        _node_begin(of)
        return _Scope(self, of.name, (of,), now_ns() if timed else None, elements)

    def _launched(self, node: ExecutionNode.Kernel) -> _Scope | None:
        """Record a launch; its node stays open."""
        if not isinstance(node.name, str):
            self._local.refuse("node names", f"a kernel's name is a text, not {shown(node.name)}")
            return None
        launcher, of = _launchers.get()[-1], brick(node.name)
        opened = (of,) if launcher is None else (launcher, of)
        if launcher is not None:
            _node_begin(launcher)
        kernel(node.name, node.grid, node.block, node.shared_mem, source=node.ptx_hash)
        if node.timing_ns is not None:
            _node(of, node.timing_ns, 0, *node.work())
        _node_begin(of)
        return _Scope(self, node.name, opened)

    def _named(self, name: str) -> Brick | None:
        if isinstance(name, str):
            return by_name(name, None)
        self._local.refuse("node names", f"a node's name is a text, not {shown(name)}")
        return None

    def _brick_of(self, id: BrickId | int | str) -> Brick | None:
        return by_name(id, None) if isinstance(id, str) else self._by_id(id)

    # ---- nodes -------------------------------------------------------------------------------------------------------

    def graph_record_brick(
        self, id: BrickId | int | str, timing_ns: SupportsFloat | SupportsIndex, elements: SupportsIndex = 0
    ) -> str | None:
        """Record the time of a brick in the open scope; returns its name.

        >>> profiler = brick.BrickProfiler()
        >>> profiler.enable_graph()
        >>> profiler.graph_record_brick(brick.BrickId.RmsNorm, 50_000, elements=4096)
        'RmsNorm'
        """
        of = self._brick_of(id) if self._graphing else None
        if of is None:
            return None
        _node(of, timing_ns, elements, 0, 0)
        _launchers.set((*_launchers.get()[:-1], of))
        return of.name

    def graph_record_kernel(
        self, name: str, ptx_hash: int | None, grid: Extent, block: Extent, shared_mem: SupportsIndex = 0
    ) -> str | None:
        """Record the launch of a kernel by the last brick of the open scope, or else by the scope.

        Returns its name. ptx_hash 0 or None: unknown.

        >>> profiler = brick.BrickProfiler()
        >>> profiler.graph_record_kernel("rmsnorm_kernel", None, (16, 1, 1), (256, 1, 1)) is None  # not enabled
        True
        """
        if not self._graphing:
            return None
        scope = self._launched(ExecutionNode.Kernel(name, ptx_hash, grid, block, shared_mem))
        if scope is None:
            return None
        scope.end()
        return name

    def graph_record_transfer(
        self,
        src: str,
        dst: str,
        bytes: SupportsIndex,
        direction: TransferDirection | str,
        timing_ns: SupportsFloat | SupportsIndex | None = None,
    ) -> str | None:
        """Record a transfer of bytes in the open scope; returns its name.

        >>> profiler = brick.BrickProfiler()
        >>> profiler.enable_graph()
        >>> profiler.graph_record_transfer("tokens", "gpu0", 4096, brick.TransferDirection.H2D)
        'tokens→gpu0'
        """
        if not self._graphing:
            return None
        known = member(TransferDirection, direction)
        if known is None:
            message = f"a transfer direction must be H2D, D2H or D2D, not {shown(direction)}"
            self._local.refuse("transfer directions", message)
            return None
        moved = f"{_name(src)}→{_name(dst)}"
        transfer(known.name, bytes, src=src, dst=dst)
        if timing_ns is not None:
            _node(moved, timing_ns, 0, 0, 0)
        return moved

    def graph_add_dependency(self, source: BrickId | int | str, target: BrickId | int | str) -> None:
        """Record that the second brick, in the open scope, needs the result of the first.

        >>> profiler = brick.BrickProfiler()
        >>> profiler.enable_graph()
        >>> profiler.graph_add_dependency("qkv_proj", brick.BrickId.AttentionScore)
        """
        if not self._graphing:
            return
        needed, brick = self._brick_of(source), self._brick_of(target)
        if needed is not None and brick is not None:
            needs(needed, brick)

    def graph_register_source(self, name: str, ptx: str, path: str | PathLike[str] | None = None) -> int | None:
        """Record the source of a kernel; returns its hash.

        >>> profiler = brick.BrickProfiler()
        >>> profiler.enable_graph()
        >>> hex(profiler.graph_register_source("rmsnorm_kernel", ".visible .entry rmsnorm_kernel() { ret; }"))
        '0x2457de3a2a827c90'
        """
        return source(ptx, name=name, path=path) if self._graphing else None

    # ---- reports -----------------------------------------------------------------------------------------------------

    def execution_graph(self) -> ExecutionGraph:
        """The graph of this process since the profiler was made or graph_clear() was called.

        >>> brick.BrickProfiler().execution_graph().nodes
        []
        """
        return ExecutionGraph(self._graphed.read())

    def graph_to_ascii_tree(self) -> str:
        """The graph as a tree, as in the seed's book.

        >>> profiler = brick.BrickProfiler()
        >>> profiler.enable_graph()
        >>> profiler.graph_record_brick(brick.BrickId.RmsNorm, 50_000, elements=4096)
        'RmsNorm'
        >>> print(profiler.graph_to_ascii_tree(), end="")
        RmsNorm  50.0µs (4096 elem)
        """
        return self.execution_graph().to_ascii_tree()

    def graph_to_dot(self) -> str:
        """The graph in DOT.

        >>> brick.BrickProfiler().graph_to_dot().startswith("digraph ExecutionGraph")
        True
        """
        return self.execution_graph().to_dot()

    def critical_path(self) -> tuple[list[int], int]:
        """The ids of the nodes on the critical path, and its length in nanoseconds.

        >>> brick.BrickProfiler().critical_path()
        ([], 0)
        """
        return self.execution_graph().critical_path()

    def compute_slack(self) -> dict[int, int]:
        """The slack of each node: by how many ns it may grow before the critical path, by id.

        >>> brick.BrickProfiler().compute_slack()
        {}
        """
        return self.execution_graph().compute_slack()

    def critical_path_summary(self) -> str:
        """The critical path as text.

        >>> print(brick.BrickProfiler().critical_path_summary().splitlines()[0])
        Critical Path: 0.00ms (0 nodes)
        """
        return self.execution_graph().critical_path_summary()

    def roofline_distance(self, peak_tflops: float, bandwidth_gb_s: float) -> dict[int, float]:
        """The distance of each kernel with FLOP and bytes from the roofline, 0 to 1, by id.

        >>> brick.BrickProfiler().roofline_distance(83.0, 1008.0)
        {}
        """
        return self.execution_graph().roofline_distance(peak_tflops, bandwidth_gb_s)
