"""The execution graph under the seed profiler's names: what is launched, moved and needed, in scopes.

    profiler.enable_graph()
    profiler.graph_push_scope(ExecutionNode.Layer(0))
    profiler.graph_record_brick(BrickId.RmsNorm, 50_000, 4096)
    profiler.graph_record_kernel("rmsnorm_kernel", ptx_hash, (16, 1, 1), (256, 1, 1), 1024)
    profiler.graph_pop_scope()

Owns: which scopes whoever runs here has open. Must not know: what the graph looks like: `brickd tree` does. A node is
known by its name and its place, so that a million launches of one kernel in one place are one node that counts them.

What the seed does otherwise. A scope of a brick, a function or a task is timed while it is open, as `with brick.span()`
is, unless its time is given with it: then it is over. A kernel that is told behind a brick, in one scope, or in the
scope of one that is over, was launched by that brick: the seed has them beside each other. What is over, a launch and a
transfer are points: all else that is recorded before such a scope is popped stands beside them. Ids are names. Calling
and containing are both standing below; that one is behind another is no edge, since of what is done again and again in
one place neither is: what must be is said by graph_add_dependency(). Nothing is kept here: what was recorded is in the
segment, where others read it, and graph_clear() takes nothing of it away.

Invariants: while it is disabled nothing is recorded, and None is returned; no call raises (but in BRICKD_STRICT=1);
scopes are their thread's, or task's: others have their own.
"""

from __future__ import annotations

import os
from contextvars import ContextVar

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


class _Scope:
    """One that is open, and what is to be ended with it: nothing, where it is a point or is not timed here.

    Attributes:
        told: the brick whose time was given with it.
    """

    __slots__ = ("elements", "name", "of", "owner", "told")

    def __init__(
        self, owner: Graphed, name: str, of: Brick | Layer | None, elements: SupportsIndex, told: Brick | None = None
    ) -> None:
        self.owner, self.name, self.of, self.elements, self.told = owner, name, of, elements, told

    def end(self) -> None:
        if isinstance(self.of, Brick):
            self.of.stop(self.elements)
        elif self.of is not None:
            self.of.__exit__(None, None, None)


def _name(of: object) -> str:
    """What it is called, as the agent calls what is no text."""
    return of if isinstance(of, str) else f"<{type(of).__name__}>"


# Never changed in place: a task begins with what was open around it, and must not end it for others.
_scopes: ContextVar[tuple[_Scope, ...]] = ContextVar("brick_agent_scopes", default=())
# Of each scope, the one that all stand in first: the brick that was told in it last.
_told: ContextVar[tuple[Brick | None, ...]] = ContextVar("brick_agent_told", default=(None,))


def _forked() -> None:
    _scopes.set(())
    _told.set((None,))


os.register_at_fork(after_in_child=_forked)


class Graphed(Timing):
    """What is launched, moved and needed, and in which scopes."""

    _graphing = False

    def enable_graph(self) -> None:
        """Record the graph from now on, whether the profiler itself is enabled or not.

        >>> profiler = brick.BrickProfiler()
        >>> profiler.enable_graph()
        """
        self._graphing = True

    def disable_graph(self) -> None:
        """Record nothing more of it; scopes that are open may be popped still.

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
        """Let what is recorded stand below a node until it is popped; its name.

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
            self._kept.refuse("scopes too deep", f"no more than {DEPTH_MAX} scopes may be open in each other")
            return None
        scope = self._opened(node)
        if scope is None:
            return None
        _scopes.set((*open_now, scope))
        _told.set((*_told.get(), scope.told))
        return scope.name

    def graph_pop_scope(self) -> str | None:
        """End the scope that was pushed last here; its name. None, and counted, where none is open.

        >>> profiler = brick.BrickProfiler()
        >>> profiler.graph_pop_scope() is None
        True
        """
        open_now = _scopes.get()
        mine = [place for place, each in enumerate(open_now) if each.owner is self]
        if not mine:
            if self._graphing:
                self._kept.refuse("scopes popped twice", "a scope is popped by the thread or task that pushed it, once")
            return None
        place, told = mine[-1], _told.get()
        _scopes.set(open_now[:place] + open_now[place + 1 :])
        _told.set(told[: place + 1] + told[place + 2 :])
        open_now[place].end()
        return open_now[place].name

    def graph_is_scope_balanced(self) -> bool:
        """Whether whoever asks, a thread or a task, has popped all that it pushed.

        >>> brick.BrickProfiler().graph_is_scope_balanced()
        True
        """
        return not any(each.owner is self for each in _scopes.get())

    def graph_clear(self) -> None:
        """Pop all that is open here. What was recorded stays where others read it.

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
                return _Scope(self, f"Layer {index}", around, 0)
            case ExecutionNode.Kernel(name, ptx_hash, grid, block, shared_mem, timing_ns):
                self._launched(name, ptx_hash, grid, block, shared_mem, timing_ns)
                return _Scope(self, name, None, 0)
            case ExecutionNode.Transfer(src, dst, size, direction, timing_ns):
                self.graph_record_transfer(src, dst, size, direction, timing_ns)
                return _Scope(self, f"{_name(src)}→{_name(dst)}", None, 0)
            case ExecutionNode.Brick(id, timing_ns, elements):
                of = self._brick_of(id)
                if of is None:
                    return None
                if timing_ns is None or (isinstance(timing_ns, (int, float)) and not timing_ns):
                    return self._timed(of, elements)
                of.record(timing_ns, elements)
                return _Scope(self, of.name, None, 0, of)
            case ExecutionNode.Function(name) | ExecutionNode.AsyncTask(name):
                return self._timed(by_name(name, None), 0)
        self._kept.refuse("nodes", f"a scope is a node, as ExecutionNode.Layer(0) is, not {shown(node)}")
        return None

    def _timed(self, of: Brick, elements: SupportsIndex) -> _Scope:
        if self._mode is SyncMode.Off:
            return _Scope(self, of.name, None, 0)
        of.start()
        return _Scope(self, of.name, of, elements)

    def _brick_of(self, id: BrickId | int | str) -> Brick | None:
        return by_name(id, None) if isinstance(id, str) else self._by_id(id)

    # ---- nodes -------------------------------------------------------------------------------------------------------

    def graph_record_brick(
        self, id: BrickId | int | str, timing_ns: SupportsFloat | SupportsIndex, elements: SupportsIndex = 0
    ) -> str | None:
        """Say how long a brick took in the scope that is open; its name.

        >>> profiler = brick.BrickProfiler()
        >>> profiler.enable_graph()
        >>> profiler.graph_record_brick(brick.BrickId.RmsNorm, 50_000, elements=4096)
        'RmsNorm'
        """
        of = self._brick_of(id) if self._graphing else None
        if of is None:
            return None
        of.record(timing_ns, elements)
        _told.set((*_told.get()[:-1], of))
        return of.name

    def graph_record_kernel(
        self, name: str, ptx_hash: int | None, grid: Extent, block: Extent, shared_mem: SupportsIndex = 0
    ) -> str | None:
        """Say that a kernel is launched, by the brick that was told last in the scope that is open, else by the scope.

        Its name is given back. ptx_hash 0 or None: not said.

        >>> profiler = brick.BrickProfiler()
        >>> profiler.graph_record_kernel("rmsnorm_kernel", None, (16, 1, 1), (256, 1, 1)) is None  # not enabled
        True
        """
        if not self._graphing:
            return None
        if (by := _told.get()[-1]) is not None:
            _launched_by(by, name, grid, block, shared_mem, ptx_hash)
        else:
            self._launched(name, ptx_hash, grid, block, shared_mem, None)
        return name

    def _launched(
        self,
        name: str,
        ptx_hash: int | None,
        grid: Extent,
        block: Extent,
        shared_mem: SupportsIndex,
        timing_ns: SupportsFloat | SupportsIndex | None,
    ) -> None:
        kernel(name, grid, block, shared_mem, source=ptx_hash, elapsed_ns=timing_ns)

    def graph_record_transfer(
        self,
        src: str,
        dst: str,
        bytes: SupportsIndex,
        direction: TransferDirection | str,
        timing_ns: SupportsFloat | SupportsIndex | None = None,
    ) -> str | None:
        """Say that bytes are moved in the scope that is open; what it is called.

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
        """Say that the second brick needs what the first makes, where the second stands in the scope that is open.

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
        """Tell what a kernel is compiled from; the hash by which it is known.

        >>> profiler = brick.BrickProfiler()
        >>> profiler.enable_graph()
        >>> hex(profiler.graph_register_source("rmsnorm_kernel", ".visible .entry rmsnorm_kernel() { ret; }"))
        '0x2457de3a2a827c90'
        """
        return source(ptx, name=name, path=path) if self._graphing else None

    # ---- reports -----------------------------------------------------------------------------------------------------

    def graph_to_ascii_tree(self) -> str:
        """How to see it as a tree.

        >>> "brickd tree" in brick.BrickProfiler().graph_to_ascii_tree()
        True
        """
        return f"{_HOW}\n"

    def graph_to_dot(self) -> str:
        """A picture, for Graphviz, that says how to have the graph as one.

        >>> "brickd tree" in brick.BrickProfiler().graph_to_dot()
        True
        """
        return f'digraph ExecutionGraph {{\n  label="{_HOW}";\n}}\n'
