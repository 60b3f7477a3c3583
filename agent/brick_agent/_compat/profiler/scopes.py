"""The open scopes of a graph, and the brick that launches what comes next.

Owns: which scopes are open in which thread or task, and what ends with each. Must not know: kinds of nodes, what a host
may state. Invariants: a scope ends once, in the context that opened it: a task, a thread or a forked child begins with
none, even though it inherits the variables of its parent; a scope that cannot be opened leaves nothing open.
"""

from __future__ import annotations

import os
from contextvars import ContextVar
from dataclasses import dataclass, field, replace

from brick_agent._compat.profiler.local_totals import now_ns
from brick_agent._core import _context_key, _node, _node_begin, _node_end

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import SupportsIndex

    from brick_agent._core import Brick, Layer


@dataclass(slots=True)
class Scope:
    """A scope of one profiler."""

    owner: object
    name: str = ""
    layer: Layer | None = None
    nodes: list[Brick] = field(default_factory=list)  # that were opened for it, the outermost first
    timed: Brick | None = None  # the node whose time is that for which it is open
    elements: SupportsIndex = 0
    _since_ns: int | None = None  # None: the time is part of an outer one

    def enter(self, layer: Layer) -> None:
        """Open a layer."""
        layer.__enter__()
        self.layer = layer

    def begin(self, node: Brick, *, elements: SupportsIndex = 0, timed: bool = False) -> None:
        """Open a node."""
        in_itself = _node_begin(node)
        self.nodes.append(node)
        if timed:
            self.timed, self.elements = node, elements
            self._since_ns = None if in_itself else now_ns()

    def close(self) -> None:
        """End what was opened."""
        while self.nodes:
            _node_end(self.nodes.pop())
        if self.layer is not None:
            self.layer.__exit__(None, None, None)

    def end(self) -> None:
        """End what was opened, and record for how long it was open."""
        timed, self.timed = self.timed, None  # a signal handler may end it in the middle of this
        self.close()
        if timed is not None:
            _node(timed, 0 if self._since_ns is None else now_ns() - self._since_ns, self.elements, 0, 0)


@dataclass(frozen=True, slots=True)
class Scopes:
    """The scopes that are open in a context, of all profilers. Never changed in place: other contexts may inherit it.

    `launchers` has one more entry than `open`: of no scope and of each scope, the brick that was recorded last in it.
    """

    context: tuple[int, int]
    open: tuple[Scope, ...] = ()
    launchers: tuple[Brick | None, ...] = (None,)

    def pushed(self, scope: Scope) -> Scopes:
        """These and one more."""
        return replace(self, open=(*self.open, scope), launchers=(*self.launchers, None))

    def popped(self, owner: object) -> tuple[Scope | None, Scopes]:
        """The last scope of a profiler, and the others."""
        for place in reversed(range(len(self.open))):
            if self.open[place].owner is owner:
                others = self.open[:place] + self.open[place + 1 :]
                launchers = self.launchers[: place + 1] + self.launchers[place + 2 :]
                return self.open[place], replace(self, open=others, launchers=launchers)
        return None, self

    def launched_by(self, brick: Brick) -> Scopes:
        """These, with a brick that launches what is recorded next."""
        return replace(self, launchers=(*self.launchers[:-1], brick))


_inherited: ContextVar[Scopes | None] = ContextVar("brick_agent_scopes", default=None)


def scopes_here() -> Scopes:
    """The scopes of the running context."""
    scopes, context = _inherited.get(), (os.getpid(), _context_key())
    return scopes if scopes is not None and scopes.context == context else Scopes(context)


def set_scopes(scopes: Scopes) -> None:
    """Set the scopes of the running context."""
    _inherited.set(scopes)
