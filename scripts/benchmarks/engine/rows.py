"""Exact digests of every row at every row-wise module of a replica. They are the truth about rows, and are made without
brickd.

Owns: how a row is recorded. Must not know: brickd, processes, how rows are compared. Invariant: rows of padding are not
recorded.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from benchmarks.engine.model import row_wise
from benchmarks.engine.row_table import ROW, Table, joined
from benchmarks.engine.scheduler import Shape, Slice


class Rows:
    """Records the rows of a model's steps."""

    def __init__(self, whole: Any) -> None:
        self.sites = [name for name, _ in whole.named_modules() if row_wise(name)]
        self._whole = whole
        self._tables: list[Table] = []
        self._computed: list[Table] = []
        self._step = np.zeros(0, ROW)  # the rows of the current step, without padding
        self._real: list[int] = []  # the places of these rows in the batch
        self._last: list[int] = []  # the last row of each generation; the model's head computes only these rows

    def looked(self, step: int, slices: Sequence[Slice], shape: Shape) -> None:
        """Note the rows of the step that begins."""
        rows, self._real, self._last = [], [], []
        for number, (generation, start, count) in enumerate(slices):
            lineage = generation.lineage.after(start, count, shape)
            rows += [
                (0, position, step, 0, 0, True, generation.histories[position], *lineage, 0, 0)
                for position in range(start, start + count)
            ]
            self._real += range((number + 1) * shape.tokens - count, (number + 1) * shape.tokens)
            self._last.append(len(rows) - 1)
        self._step = np.array(rows, ROW)
        self._computed.append(self._step)

    def noting_changes(self, site: str, right: Any) -> Callable[[], None]:
        """Start to note which rows a fault changes. The returned function ends this.

        Args:
            site: the path of the faulty module.
            right: a copy of the module without the fault. It computes each call again, to get the right result.
        """
        for each in right.modules():
            vars(each).pop("_call_impl", None)  # a profiler may have wrapped the original, and its wrapper was copied

        def called(_: Any, given: Any, result: Any) -> None:
            differs = (result != right.forward(*given)).reshape(-1, result.shape[-1]).any(dim=-1)
            self._step["changed"] = differs.numpy()[self._real]

        remove: Callable[[], None] = self._whole.get_submodule(site).register_forward_hook(called).remove
        return remove

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record all calls of the model."""
        hooks = [
            self._whole.get_submodule(name).register_forward_hook(self._hook(number))
            for number, name in enumerate(self.sites)
        ]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def _hook(self, site: int) -> Any:
        def called(_: Any, given: Any, result: Any) -> None:
            inputs, outputs = _digests(given), _digests(result)
            head = len(inputs) == len(self._last) != len(self._step)
            table = self._step[self._last] if head else self._step.copy()
            real = range(len(inputs)) if head else self._real
            table["site"], table["called"], table["place"] = site, len(inputs), real
            table["input"], table["output"] = inputs[real], outputs[real]
            self._tables.append(table)

        return called

    def table(self) -> Table:
        """All recorded rows."""
        return joined(self._tables)

    def computed(self) -> Table:
        """Return all rows of all steps, without digests. Each row was computed at every site, except at the experts
        that did not get it.
        """
        return joined(self._computed)


def _digests(of: Any) -> Any:
    """A digest of each row of one tensor, or of several tensors side by side."""
    tensors = [of] if isinstance(of, torch.Tensor) else [each for each in of if isinstance(each, torch.Tensor)]
    parts = [each.reshape(-1, each.shape[-1]).contiguous().view(torch.uint8).numpy() for each in tensors]
    rows = [hashlib.blake2b(row.tobytes(), digest_size=8).digest() for row in np.concatenate(parts, axis=1)]
    return np.frombuffer(b"".join(rows), np.uint64)
