"""A node of the call tree (a brick, a kernel, a transfer, a layer), and its figures.

Owns: the units of paths, the fields of a node, its kind, its amounts, the part of its document that brickd and the
agent have in common. Must not know: paths, how nodes are made, screens. This file is part of the agent; brickd has a
symbolic link to it. Invariant: a kernel or a transfer whose time is unknown has no row.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, NamedTuple, TypedDict, TypeVar

from .graph_marks import SHOWN_MAX, Definition, KernelMark, Stated, Task, TransferMark

# The values of enum brick_unit.
TICKS, NS, DEFERRED, BOUND, LAUNCHED, SHAPED = range(6)
DIRECTIONS = {6: "H2D", 7: "D2H", 8: "D2D"}
RETURNED, NEEDS, DEFINED, ENDED, NODE, TASK = range(9, 15)

Kind = Literal["layer", "brick", "function", "task", "kernel", "transfer"]


class Figures(TypedDict):
    """The totals of a row that both brickd and the agent have. In brickd, a row has more of them."""

    count: int
    total_ns: float
    self_ns: float
    elements: int
    bytes: int
    flops: float


F = TypeVar("F", bound=Figures)


@dataclass(slots=True)
class OmittedNodes:
    """The number of omitted nodes below a node, and their self time."""

    nodes: int = 0
    self_ns: float = 0.0


class Amounts(NamedTuple):
    """The amount of work: elements, bytes, FLOP."""

    elements: int = 0
    size_bytes: int = 0
    flops: float = 0.0

    @property
    def intensity(self) -> float | None:
        """The intensity in FLOP/byte; None if FLOP or bytes are unknown."""
        return round(self.flops / self.size_bytes, 4) if self.flops and self.size_bytes else None


NOTHING = Amounts()


@dataclass(slots=True)
class TreeNode(Generic[F]):
    """A node of the call tree.

    Attributes:
        name: the name of the brick, the kernel or the layer; for a transfer, its two ends.
        layer: the layer of the node; None: it has no layer, or layers are not separate.
        unit: the unit of its times, or the kind of its mark; None: the node is a layer.
        below: its children, the largest first.
        layers: all layers of its spans.
        first: the position of the node in the order in which a worker first reached its nodes; with several workers,
            the smallest position.
        row: the totals of its spans, or else the figures that its host gives; None if its own time is unknown.
        stated: the figures that its host gives.
        stated_ns: at first, the time of the node, if its row has the host's figures. After all times are added up: the
            sum of the self times that the host gives for it and for the nodes below it, down to the next spans.
        untimed: the amounts of launches without a known time.
        self_ns: the time in its spans that belongs to no other node.
        total_ns: the time of its ended spans; while one of its spans is open, also the time of the ended spans below.
            For a layer: the time of all nodes below it.
        host_ns: the part of total_ns that is the time of the host, not of a device.
        ended_ns: the self times of this node and all nodes below it, without the times that were given.
        whole: the size of its subtree, if the subtree is omitted.
        task: whether its spans are polls of tasks.
        needs: for each needed name, how often it was recorded.
    """

    name: str
    layer: int | None
    unit: int | None
    above: TreeNode[F] | None = None
    below: list[TreeNode[F]] = field(default_factory=list)
    layers: set[int] = field(default_factory=set)
    first: int = 0
    row: F | None = None
    stated: Stated | None = None
    stated_ns: float = 0.0
    untimed: Amounts = NOTHING
    self_ns: float = 0.0
    total_ns: float = 0.0
    host_ns: float = 0.0
    ended_ns: float = 0.0
    whole: OmittedNodes = field(default_factory=OmittedNodes)
    kernel: KernelMark | None = None
    transfer: TransferMark | None = None
    definitions: set[Definition] = field(default_factory=set)
    task: Task | None = None
    needs: Counter[str] = field(default_factory=Counter)

    @property
    def kind(self) -> Kind:
        """The kind of the node."""
        if self.unit is None:
            return "layer"
        if self.kernel is not None or self.transfer is not None:
            return "transfer" if self.kernel is None else "kernel"
        if self.task is not None:
            return "task"
        return "function" if self.definitions else "brick"

    @property
    def count(self) -> int:
        """The number of ended spans, or of timed launches or transfers, of this node."""
        return 0 if self.row is None else self.row["count"]

    @property
    def amounts(self) -> Amounts:
        """The amounts of all spans, launches or transfers of this node."""
        if self.transfer is not None:
            return Amounts(size_bytes=self.transfer.size_bytes)
        timed = NOTHING if self.row is None else amounts_of(self.row)
        return Amounts(
            self.untimed.elements + timed.elements,
            self.untimed.size_bytes + timed.size_bytes,
            self.untimed.flops + timed.flops,
        )

    @property
    def timed_flops(self) -> float:
        """The FLOP of the work whose time is known.

        The FLOP of deferred work are recorded with its launch, not with its time.
        """
        if self.row is None:
            return 0.0
        all_timed = self.kernel is None or self.row["count"] >= self.kernel.launches
        return self.row["flops"] + (self.untimed.flops if all_timed else 0.0)

    @property
    def given(self) -> bool:
        """Whether the node's times were given to the worker, and not measured as spans."""
        return self.unit in (NS, BOUND)

    @property
    def drawn(self) -> bool:
        """Whether the host draws this node, and no time of it was measured."""
        return self.unit == NODE

    @property
    def bounded(self) -> bool:
        """Whether the node's times are only upper bounds: each is a part of the time until a sync."""
        return self.unit == BOUND

    @property
    def timeless(self) -> bool:
        """Whether the node's time is unknown."""
        return self.row is None and self.unit is not None

    def document(self) -> dict[str, Any]:
        """The part of the node's JSON document that is the same in brickd and in the agent."""
        count, amounts = self.count, self.amounts
        return {
            "kind": self.kind,
            "name": self.name,
            "given": self.given or (self.drawn and not self.timeless),
            "count": count,
            "order": self.first,
            "stated": None if self.stated is None else self.stated.document(),
            "total_ns": None if self.timeless else round(self.total_ns),
            "elements": amounts.elements,
            "bytes": amounts.size_bytes,
            "flops": round(amounts.flops),
            "kernel": None if self.kernel is None else self.kernel.document(count),
            "transfer": None if self.transfer is None else self.transfer.document(count),
            "definitions": [each.document() for each in sorted(self.definitions, key=str)[:SHOWN_MAX]],
            "task": None if self.task is None else self.task.document(0 if self.drawn else count),
        }


def amounts_of(row: Figures) -> Amounts:
    """The amounts in the spans of a row."""
    return Amounts(row["elements"], row["bytes"], row["flops"])
