"""ExecutionNode: the scopes of the graph, under the predecessor's names.

Owns: the kinds and fields of nodes. Must not know: how nodes are recorded. Invariant: creating a node records nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
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

    __module__ = "brick_agent"  # pickles name this module, not this file

    H2D = 0
    D2H = 1
    D2D = 2


class ExecutionNode:
    """The kinds of nodes for graph_push_scope.

    >>> brick.ExecutionNode.Layer(0)
    ExecutionNode.Layer(index=0)
    """

    __module__ = "brick_agent"  # pickles name this module, not this file

    @dataclass(frozen=True, slots=True)
    class Layer:
        """A layer of the model."""

        index: SupportsIndex

    @dataclass(frozen=True, slots=True)
    class Brick:
        """A brick. If no time is given for a scope, the scope is timed from its opening to its end."""

        id: BrickId | int | str
        timing_ns: SupportsFloat | SupportsIndex = 0
        elements: SupportsIndex = 0

    @dataclass(frozen=True, slots=True)
    class Kernel:
        """The launch of a kernel; its FLOP/byte and its achieved TFLOP/s are for a roofline."""

        name: str
        ptx_hash: int | None = None
        grid: Extent = None
        block: Extent = None
        shared_mem: SupportsIndex = 0
        timing_ns: SupportsFloat | SupportsIndex | None = None
        arithmetic_intensity: float | None = None
        achieved_tflops: float | None = None

        def __setstate__(self, state: list[object]) -> None:
            # Older pickles have no values for the last two fields.
            for each, value in zip(fields(self), [*state, None, None], strict=False):
                object.__setattr__(self, each.name, value)

        def work(self) -> tuple[int, float]:
            """Calculate the bytes and the FLOP from the kernel's time, its TFLOP/s and its FLOP/byte; 0 if unknown."""
            try:
                flops = float(self.achieved_tflops or 0) * 1e3 * float(self.timing_ns or 0)
                return (round(flops / float(self.arithmetic_intensity)) if self.arithmetic_intensity else 0), flops
            except Exception:
                return 0, -1.0  # the writer counts this invalid amount

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
        """A function, with the file and line of its definition; timed while its scope is open."""

        name: str
        file: str | None = None
        line: SupportsIndex | None = None

    @dataclass(frozen=True, slots=True)
    class AsyncTask:
        """A task with its polls and yields. A task with a total_poll_ns of 0 is timed while its scope is open."""

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
