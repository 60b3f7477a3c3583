"""The execution graph under the seed profiler's names: launches, transfers, needs, scopes.

    profiler.enable_graph()
    profiler.graph_push_scope(ExecutionNode.Layer(0))
    profiler.graph_record_brick(BrickId.RmsNorm, 50_000, 4096)
    profiler.graph_record_kernel("rmsnorm_kernel", ptx_hash, (16, 1, 1), (256, 1, 1), 1024)
    profiler.graph_pop_scope()

Owns: the open scopes of each thread and task. Must not know: what the graph looks like: `brickd tree` does. A node is
known by its name and its place: a million launches of one kernel in one place are one node that counts them.

Differences from the seed. A scope of a brick, a function or a task is timed while it is open, as `with brick.span()`
is, unless its time is given: then it is over. A kernel that is recorded after a brick in one scope, or in the scope of
a brick that is over, was launched by that brick: the seed makes them siblings. Scopes that are over, launches and
transfers are points: what is recorded before such a scope is popped is their sibling. Ids are names. Calling and
containing are one relation. Order makes no edge, since in a place where work repeats it has no meaning:
graph_add_dependency() adds edges. Nothing is kept here: the records are in the segment, and graph_clear() leaves them.

Invariants: while it is disabled nothing is recorded, and None is returned; no call raises (except with
BRICKD_STRICT=1); each thread and each task has scopes of its own.
"""

from __future__ import annotations

import os
from contextvars import ContextVar
from dataclasses import dataclass

from brick_agent._compat.profiler.local_totals import shown
from brick_agent._compat.profiler.node import ExecutionNode, TransferDirection
from brick_agent._compat.profiler.timing import SyncMode, Timing, by_name
from brick_agent._core import Brick, _launched_by, kernel, layer, needs, transfer
from brick_agent._kernel_source import source

TYPE_CHECKING = False
if TYPE_CHECKING:
    from os import PathLike
    from typing import SupportsFloat, SupportsIndex

    from brick_agent._compat.profiler.brick_ids import BrickId
    from brick_agent._compat.profiler.node import Extent, Node
    from brick_agent._core import Layer

DEPTH_MAX = 256

_HOW = "the graph is drawn where all workers are known: brickd tree (--dot, --json), live or of a recording"


@dataclass(slots=True)
class _Scope:
    """An open scope."""

    owner: Graphed
    name: str
    of: Brick | Layer | None = None  # ends with it; None: it is a point, or not timed here
    elements: SupportsIndex = 0
    launcher: Brick | None = None  # the brick whose time was given with it

    def end(self) -> None:
        if isinstance(self.of, Brick):
            self.of.stop(self.elements)
        elif self.of is not None:
            self.of.__exit__(None, None, None)


def _name(of: object) -> str:
    """The name that the agent gives to what is no text."""
    return of if isinstance(of, str) else f"<{type(of).__name__}>"


# Never changed in place: a task begins with the scopes that were open around it, and must not end them for others.
_scopes: ContextVar[tuple[_Scope, ...]] = ContextVar("brick_agent_scopes", default=())
# Of each scope, and before them of none: the brick that was recorded last in it, which launches what follows.
_launchers: ContextVar[tuple[Brick | None, ...]] = ContextVar("brick_agent_launchers", default=(None,))


def _forked() -> None:
    _scopes.set(())
    _launchers.set((None,))


os.register_at_fork(after_in_child=_forked)


class Graphed(Timing):
    """Launches, transfers and needs, in scopes."""

    _graphing = False

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
        """Open a scope: what is recorded is below this node until it is popped; returns its name.

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
        _launchers.set((*_launchers.get(), scope.launcher))
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
        """Pop all scopes that are open here. The records stay in the segment.

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

    def _opened(self, node: Node) -> _Scope | None:
        match node:
            case ExecutionNode.Layer(index):
                around = layer(index)
                around.__enter__()
                return _Scope(self, f"Layer {index}", around)
            case ExecutionNode.Kernel(name, ptx_hash, grid, block, shared_mem, timing_ns):
                kernel(name, grid, block, shared_mem, source=ptx_hash, elapsed_ns=timing_ns)
                return _Scope(self, name)
            case ExecutionNode.Transfer(src, dst, size, direction, timing_ns):
                self.graph_record_transfer(src, dst, size, direction, timing_ns)
                return _Scope(self, f"{_name(src)}→{_name(dst)}")
            case ExecutionNode.Brick(id, timing_ns, elements):
                of = self._brick_of(id)
                if of is None:
                    return None
                if timing_ns is None or (isinstance(timing_ns, (int, float)) and not timing_ns):
                    return self._timed(of, elements)
                of.record(timing_ns, elements)
                return _Scope(self, of.name, launcher=of)
            case ExecutionNode.Function(name) | ExecutionNode.AsyncTask(name):
                return self._timed(by_name(name, None), 0)
        self._local.refuse("nodes", f"a scope is a node, as ExecutionNode.Layer(0) is, not {shown(node)}")
        return None

    def _timed(self, of: Brick, elements: SupportsIndex) -> _Scope:
        if self._mode is SyncMode.Off:
            return _Scope(self, of.name)
        of.start()
        return _Scope(self, of.name, of, elements)

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
        of.record(timing_ns, elements)
        _launchers.set((*_launchers.get()[:-1], of))
        return of.name

    def graph_record_kernel(
        self, name: str, ptx_hash: int | None, grid: Extent, block: Extent, shared_mem: SupportsIndex = 0
    ) -> str | None:
        """Record the launch of a kernel by the last brick of the open scope, else by the scope.

        Returns its name. ptx_hash 0 or None: unknown.

        >>> profiler = brick.BrickProfiler()
        >>> profiler.graph_record_kernel("rmsnorm_kernel", None, (16, 1, 1), (256, 1, 1)) is None  # not enabled
        True
        """
        if not self._graphing:
            return None
        if (launcher := _launchers.get()[-1]) is not None:
            _launched_by(launcher, name, grid, block, shared_mem, ptx_hash)
        else:
            kernel(name, grid, block, shared_mem, source=ptx_hash)
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
        known = direction.name if isinstance(direction, TransferDirection) else direction
        transfer(known, bytes, src=src, dst=dst, elapsed_ns=timing_ns)
        return f"{_name(src)}→{_name(dst)}"

    def graph_add_dependency(self, source: BrickId | int | str, target: BrickId | int | str) -> None:
        """Record that the second brick, in the open scope, needs what the first makes.

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

    def graph_to_ascii_tree(self) -> str:
        """Explain how to see the graph as a tree.

        >>> "brickd tree" in brick.BrickProfiler().graph_to_ascii_tree()
        True
        """
        return f"{_HOW}\n"

    def graph_to_dot(self) -> str:
        """A picture for Graphviz that explains how to draw the graph.

        >>> "brickd tree" in brick.BrickProfiler().graph_to_dot()
        True
        """
        return f'digraph ExecutionGraph {{\n  label="{_HOW}";\n}}\n'
