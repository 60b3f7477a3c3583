"""A place of the call tree: a brick, a kernel, a transfer, a layer, and what is known of it.

Owns: what one place is, which kind it is, what was done in it. Must not know: paths, how places are merged, screens.
Invariant: of a kernel or a transfer without a known time there is none.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from brickd.shm import _reader
from brickd.shm.marks import Definition, KernelMark, Stated, Task, TransferMark

Kind = Literal["layer", "brick", "function", "task", "kernel", "transfer"]


@dataclass(slots=True)
class OmittedNodes:
    """The places that are left out below one, and their self times."""

    nodes: int = 0
    self_ns: float = 0.0


class Amounts(NamedTuple):
    """What was done."""

    elements: int = 0
    size_bytes: int = 0
    flops: float = 0.0

    @property
    def intensity(self) -> float | None:
        """In FLOP/byte; None where either is not known."""
        return round(self.flops / self.size_bytes, 4) if self.flops and self.size_bytes else None


NOTHING = Amounts()


@dataclass(slots=True)
class TreeNode:
    """Where something stands in the tree.

    Attributes:
        name: of the brick, the kernel, the layer; of a transfer its couple of ends.
        layer: that it is kept apart for; None: it has none, or they are not kept apart.
        unit: of its times, or what its mark says.
        below: what stands in it, the largest first.
        layers: that it stands for.
        first: its place in the order in which a worker came to all of them; of several workers the smallest.
        row: the totals of its spans, else of what its host states; None where no time of its own is known.
        stated: what its host states of it.
        stated_ns: the time, if its row is what its host states; then the self times that were stated in it, up to the
            next spans.
        untimed: what was done in launches without a known time.
        total_ns: the time in its spans that ended, and in those in it where the one around them is still open; of a
            layer, of all that stands in it.
        host_ns: of that, what was no device's.
        ended_ns: the self times of it and all below, without those that were given.
        whole: it and all below, were they left out.
        task: where its spans are stretches of tasks.
        needs: how often each name was recorded as needed.
    """

    name: str
    layer: int | None
    category: str
    unit: int | None
    above: TreeNode | None = None
    below: list[TreeNode] = field(default_factory=list)
    layers: set[int] = field(default_factory=set)
    first: int = 0
    row: _reader.Row | None = None
    stated: Stated | None = None
    stated_ns: float = 0.0
    untimed: Amounts = NOTHING
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
        """What it is."""
        if self.unit is None:
            return "layer"
        if self.kernel is not None or self.transfer is not None:
            return "transfer" if self.kernel is None else "kernel"
        if self.task is not None:
            return "task"
        return "function" if self.definitions else "brick"

    @property
    def amounts(self) -> Amounts:
        """What was done in all its spans, launches or transfers."""
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
        """The operations in the time that is known; a launch records those of deferred work."""
        if self.row is None:
            return 0.0
        all_timed = self.kernel is None or self.row["count"] >= self.kernel.launches
        return self.row["flops"] + (self.untimed.flops if all_timed else 0.0)

    @property
    def given(self) -> bool:
        """Whether its times were measured elsewhere."""
        return self.unit in (_reader.UNIT_NS, _reader.UNIT_BOUND)

    @property
    def drawn(self) -> bool:
        """Whether no time of it was measured: its host draws it, and states one or none."""
        return self.unit == _reader.UNIT_NODE

    @property
    def bounded(self) -> bool:
        """Whether its times are only bounds: parts of the time until a device was waited for."""
        return self.unit == _reader.UNIT_BOUND

    @property
    def self_ns(self) -> float:
        """The time in its spans that no other place has."""
        return 0.0 if self.row is None else self.row["self_ns"]

    @property
    def timeless(self) -> bool:
        """Whether its time is not known."""
        return self.row is None and self.unit is not None


def amounts_of(row: _reader.Row) -> Amounts:
    """The amounts in the spans of a row."""
    return Amounts(row["elements"], row["bytes"], row["flops"])
