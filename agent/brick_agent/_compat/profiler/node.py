"""ExecutionNode: the scopes of the seed profiler's graph, under the seed's names.

Owns: the kinds of nodes and their fields. Must not know: how a node is recorded. Invariants: making a node records
nothing.
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
    """The direction of a transfer.

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
        """A layer of the model."""

        index: SupportsIndex

    @dataclass(frozen=True, slots=True)
    class Brick:
        """A brick. As a scope without a given time it is timed until it is popped."""

        id: BrickId | int | str
        timing_ns: SupportsFloat | SupportsIndex = 0
        elements: SupportsIndex = 0

    @dataclass(frozen=True, slots=True)
    class Kernel:
        """The launch of a kernel: what is recorded inside is its sibling."""

        name: str
        ptx_hash: int | None = None
        grid: Extent = None
        block: Extent = None
        shared_mem: SupportsIndex = 0
        timing_ns: SupportsFloat | SupportsIndex | None = None

    @dataclass(frozen=True, slots=True)
    class Transfer:
        """A transfer of bytes."""

        src: str
        dst: str
        bytes: SupportsIndex
        direction: TransferDirection | str
        timing_ns: SupportsFloat | SupportsIndex | None = None

    @dataclass(frozen=True, slots=True)
    class Function:
        """A function, timed until it is popped. `brick.trace` records where it is defined."""

        name: str
        file: str | None = None
        line: SupportsIndex | None = None

    @dataclass(frozen=True, slots=True)
    class AsyncTask:
        """A task, timed until it is popped. `brick.trace(waits=False)` counts its polls."""

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
