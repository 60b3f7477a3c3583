"""ExecutionNode: what a scope of the seed profiler's graph is made of, under the seed's names.

Owns: the kinds of nodes and what they hold. Must not know: how any of it is recorded. Invariants: a node is only what
was said of it; making one records nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import SupportsFloat, SupportsIndex

    from brick_agent._compat.profiler.brick_ids import BrickId

    Extent = SupportsIndex | tuple[SupportsIndex, ...] | list[SupportsIndex] | None


class TransferDirection(IntEnum):
    """From where to where bytes are moved.

    >>> brick.TransferDirection.H2D.name
    'H2D'
    """

    __module__ = "brick_agent"  # the path in pickles, wherever this file is

    H2D = 0
    D2H = 1
    D2D = 2


class ExecutionNode:
    """The kinds of nodes that graph_push_scope takes.

    >>> brick.ExecutionNode.Layer(0)
    ExecutionNode.Layer(index=0)
    """

    __module__ = "brick_agent"  # the path in pickles, wherever this file is

    @dataclass(frozen=True, slots=True)
    class Layer:
        """A layer of the model: what stands inside knows it."""

        index: SupportsIndex

    @dataclass(frozen=True, slots=True)
    class Brick:
        """A brick. As a scope it is timed until it is popped; a time that is given belongs to graph_record_brick."""

        id: BrickId | int | str
        timing_ns: SupportsFloat | SupportsIndex = 0
        elements: SupportsIndex = 0

    @dataclass(frozen=True, slots=True)
    class Kernel:
        """A kernel that is launched: what is recorded inside is launched beside it."""

        name: str
        ptx_hash: int | None = None
        grid: Extent = None
        block: Extent = None
        shared_mem: SupportsIndex = 0
        timing_ns: SupportsFloat | SupportsIndex | None = None

    @dataclass(frozen=True, slots=True)
    class Transfer:
        """Bytes that are moved."""

        src: str
        dst: str
        bytes: SupportsIndex
        direction: TransferDirection | str
        timing_ns: SupportsFloat | SupportsIndex | None = None

    @dataclass(frozen=True, slots=True)
    class Function:
        """A function, timed until it is popped. Of where it is defined `brick.trace` tells."""

        name: str
        file: str | None = None
        line: SupportsIndex | None = None

    @dataclass(frozen=True, slots=True)
    class AsyncTask:
        """A task, timed until it is popped. How it was polled `brick.trace(waits=False)` counts."""

        name: str
        poll_count: SupportsIndex = 0
        yield_count: SupportsIndex = 0
        total_poll_ns: SupportsFloat | SupportsIndex = 0


if TYPE_CHECKING:
    Node = (
        ExecutionNode.Layer
        | ExecutionNode.Brick
        | ExecutionNode.Kernel
        | ExecutionNode.Transfer
        | ExecutionNode.Function
        | ExecutionNode.AsyncTask
    )
