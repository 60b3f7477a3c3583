"""The open scopes of a graph, and the brick that launches the next kernels.

Owns: which scopes are open in which thread or task, and which spans and nodes end with a scope. Must not know: the
kinds of nodes, and which figures a host may give. Invariants: a scope ends once, in the context that opened it; a task,
a thread or a forked child begins without scopes, although it inherits the variables of its parent; a scope that cannot
be opened leaves nothing open; if one scope raises at its end (in strict mode), the other scopes still end.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from weakref import ref

from brick_agent._compat.profiler.local_totals import now_ns
from brick_agent._core import _context, _node, _node_begin, _node_end, _place

TYPE_CHECKING = False
if TYPE_CHECKING:
    from contextvars import Context
    from typing import SupportsIndex

    from brick_agent._core import Brick, Layer


@dataclass(slots=True)
class Scope:
    """A scope of one profiler."""

    owner: object
    name: str = ""
    timed: Brick | None = None  # the node that gets the time for which the scope is open
    elements: SupportsIndex = 0
    _since_ns: int | None = None  # None: the time of an outer scope includes this scope's time
    _ends: ExitStack = field(default_factory=ExitStack)  # ends the spans and nodes that were opened for the scope

    def enter(self, layer: Layer) -> None:
        """Open a layer."""
        self._ends.enter_context(layer)

    def begin(self, node: Brick, *, elements: SupportsIndex = 0, timed: bool = False) -> None:
        """Open a node."""
        in_itself = _node_begin(node)
        self._ends.callback(_node_end, node)
        if timed:
            self.timed, self.elements = node, elements
            self._since_ns = None if in_itself and _is_timed(node) else now_ns()

    def close(self) -> None:
        """End the spans and nodes that were opened, without recording a time."""
        self._ends.close()

    def end(self) -> None:
        """End the spans and nodes that were opened, and record the duration."""
        timed, self.timed = self.timed, None  # a signal handler may end the same scope during this call
        try:
            self.close()
        finally:
            if timed is not None:
                _node(timed, 0 if self._since_ns is None else now_ns() - self._since_ns, self.elements, 0, 0)


def _is_timed(node: Brick) -> bool:
    """Whether an open scope of this node already measures the node's time."""
    return any(each.timed is not None and each.timed.name == node.name for each in scopes_here().open)


@dataclass(frozen=True, slots=True)
class Launcher:
    """The brick that launches the next kernels in a span and layer; None: the scope or the span launches them."""

    owner: ref[object]
    brick: Brick | None
    place: tuple[int, int] = field(default_factory=_place)


@dataclass(frozen=True, slots=True)
class Scopes:
    """The open scopes of all profilers in one context.

    This object is immutable, because several contexts may inherit it. `launchers` has one entry more than `open`: its
    first entry is for records outside of scopes.
    """

    process: int
    context: ref[Context]  # a reference, not the address: a later context may have the same address
    open: tuple[Scope, ...] = ()
    launchers: tuple[Launcher | None, ...] = (None,)
    launched: Launcher | None = None  # for the last kernel that a scope or span launched itself

    def pushed(self, scope: Scope) -> Scopes:
        """Return a copy with one more scope."""
        return replace(self, open=(*self.open, scope), launchers=(*self.launchers, None))

    def popped(self, owner: object) -> tuple[Scope | None, Scopes]:
        """Return the last scope of a profiler, and a copy without that scope."""
        for place in reversed(range(len(self.open))):
            if self.open[place].owner is owner:
                others = self.open[:place] + self.open[place + 1 :]
                launchers = self.launchers[: place + 1] + self.launchers[place + 2 :]
                return self.open[place], replace(self, open=others, launchers=launchers)
        return None, self

    def launcher(self, owner: object) -> Brick | None:
        """Return the brick that launches the next kernels of a profiler; None: the open scope launches them."""
        last = self.launchers[-1]
        return last.brick if last is not None and last.owner() is owner and last.place == _place() else None

    def has_launched(self, owner: object) -> bool:
        """Return whether the innermost span itself launched a profiler's last kernel."""
        last = self.launched
        return last is not None and last.owner() is owner and last.place == _place()

    def launching(self, owner: object) -> Scopes:
        """Return a copy in which the innermost span itself has launched a kernel of a profiler."""
        return replace(self, launched=Launcher(ref(owner), None))

    def launched_by(self, owner: object, brick: Brick | None) -> Scopes:
        """Return a copy in which `brick` launches the next kernels of a profiler."""
        return replace(self, launchers=(*self.launchers[:-1], None if brick is None else Launcher(ref(owner), brick)))


_inherited: ContextVar[Scopes | None] = ContextVar("brick_agent_scopes", default=None)


def scopes_here() -> Scopes:
    """The scopes of the running context."""
    scopes, process, context = _inherited.get(), os.getpid(), _context()
    if scopes is not None and scopes.process == process and scopes.context() is context:
        return scopes
    return Scopes(process, ref(context))


def set_scopes(scopes: Scopes) -> None:
    """Set the scopes of the running context."""
    _inherited.set(scopes)
