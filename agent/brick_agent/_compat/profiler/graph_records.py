"""Records of the execution graph that open no scope: transfers, needs, sources.

Owns: these records, and whether the graph is recorded. Must not know: scopes, launches. Invariants: the same as in
`graph`.
"""

from __future__ import annotations

from brick_agent._compat.profiler.local_totals import member, shown
from brick_agent._compat.profiler.node import TransferDirection
from brick_agent._compat.profiler.own_segment import Recorded
from brick_agent._compat.profiler.sync_modes import SyncMode
from brick_agent._compat.profiler.timing import TimedWork, by_name
from brick_agent._core import _node, needs, transfer
from brick_agent._kernel_source import source

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from os import PathLike
    from typing import SupportsFloat, SupportsIndex

    from brick_agent._compat.profiler.brick_ids import BrickId
    from brick_agent._core import Brick


def _name(of: object) -> str:
    """Return a string unchanged; for any other object, return the name of its brick."""
    return of if isinstance(of, str) else f"<{type(of).__name__}>"


class GraphRecords(TimedWork):
    """Records transfers, needs and sources in the open scope."""

    def __init__(self, sync: Callable[[], object] | None, mode: SyncMode | str) -> None:
        super().__init__(sync, mode)
        self._graphed = Recorded(marks=True)

    def enable_graph(self) -> None:
        """Record the graph from now on, even if the profiler is disabled.

        >>> profiler = brick.BrickProfiler()
        >>> profiler.enable_graph()
        """
        self._graphing = True

    def disable_graph(self) -> None:
        """Stop recording the graph; open scopes can still be popped.

        >>> brick.BrickProfiler().disable_graph()
        """
        self._graphing = False

    def is_graph_enabled(self) -> bool:
        """Whether the graph is recorded.

        >>> brick.BrickProfiler().is_graph_enabled()
        False
        """
        return self._graphing

    def graph_record_transfer(
        self,
        src: str,
        dst: str,
        bytes: SupportsIndex,
        direction: TransferDirection | str,
        timing_ns: SupportsFloat | SupportsIndex | None = None,
    ) -> str | None:
        """Record a transfer of bytes in the open scope; return its name.

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
        """Record that `target`, a brick in the open scope, needs the result of `source`.

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
        """Record the source of a kernel; return its hash.

        >>> profiler = brick.BrickProfiler()
        >>> profiler.enable_graph()
        >>> hex(profiler.graph_register_source("rmsnorm_kernel", ".visible .entry rmsnorm_kernel() { ret; }"))
        '0x2457de3a2a827c90'
        """
        return source(ptx, name=name, path=path) if self._graphing else None

    def _named(self, name: str) -> Brick | None:
        if isinstance(name, str):
            return by_name(name, None)
        self._local.refuse("node names", f"a node's name is a text, not {shown(name)}")
        return None

    def _brick_of(self, id: BrickId | int | str) -> Brick | None:
        return by_name(id, None) if isinstance(id, str) else self._by_id(id)
