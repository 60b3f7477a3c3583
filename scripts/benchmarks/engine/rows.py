"""Exact digests of every row at every row-wise module, and what equal inputs, histories and lineages imply.

This is the truth about rows, made without brickd. Owns: the table of rows, how tables of replicas are compared. Must
not know: brickd, processes. Invariant: rows of padding are not in the table.
"""

from __future__ import annotations

import functools
import hashlib
import operator
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from benchmarks.engine.model import row_wise
from benchmarks.engine.scheduler import Shape, Slice

Table = np.ndarray[Any, np.dtype[np.void]]
ROW = np.dtype(
    [
        ("site", np.uint16),
        ("position", np.uint16),
        ("step", np.uint32),
        ("called", np.uint32),
        *((name, np.uint64) for name in ("history", "borders", "widths", "shapes", "input", "output")),
    ]
)
# The keys of comparisons, from what must be equal to what may differ.
KEYS = {
    "equal input row": ("site", "input"),
    "equal input row, calls of as many rows": ("site", "input", "called"),
    "equal history, lineage with shapes": ("site", "position", "history", "shapes"),
    "equal history, lineage with widths": ("site", "position", "history", "widths"),
    "equal history, lineage of borders": ("site", "position", "history", "borders"),
    "equal history": ("site", "position", "history"),
}


class Rows:
    """Records the rows of a model's steps."""

    def __init__(self, whole: Any) -> None:
        self.sites = [name for name, _ in whole.named_modules() if row_wise(name)]
        self._whole = whole
        self._tables: list[Table] = []
        self._step = np.zeros(0, ROW)  # the rows of the current step, without padding
        self._real: list[int] = []  # where they are in the batch
        self._last: list[int] = []  # of each generation, its last row: the head computes only these
        self._steps = 0

    def looked(self, slices: Sequence[Slice], shape: Shape) -> None:
        """Note the rows of the step that begins."""
        rows, self._real, self._last = [], [], []
        for number, (generation, start, count) in enumerate(slices):
            lineage = generation.lineage.after(start, count, shape)
            rows += [
                (0, position, self._steps, 0, generation.histories[position], *lineage, 0, 0)
                for position in range(start, start + count)
            ]
            self._real += range((number + 1) * shape.tokens - count, (number + 1) * shape.tokens)
            self._last.append(len(rows) - 1)
        self._step = np.array(rows, ROW)
        self._steps += 1

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
            table["site"], table["called"] = site, len(inputs)
            table["input"], table["output"] = inputs[real], outputs[real]
            self._tables.append(table)

        return called

    def table(self) -> Table:
        """All recorded rows."""
        return np.concatenate(self._tables) if self._tables else np.zeros(0, ROW)


def _digests(of: Any) -> Any:
    """A digest of each row of one tensor, or of several side by side."""
    tensors = [of] if isinstance(of, torch.Tensor) else [each for each in of if isinstance(each, torch.Tensor)]
    parts = [each.reshape(-1, each.shape[-1]).contiguous().view(torch.uint8).numpy() for each in tensors]
    rows = [hashlib.blake2b(row.tobytes(), digest_size=8).digest() for row in np.concatenate(parts, axis=1)]
    return np.frombuffer(b"".join(rows), np.uint64)


def compared(tables: Sequence[Table], sites: Sequence[str]) -> list[dict[str, Any]]:
    """Compare the rows of several replicas by each key."""
    return [_compared(name, keys, tables, sites) for name, keys in KEYS.items()]


def _compared(name: str, keys: tuple[str, ...], tables: Sequence[Table], sites: Sequence[str]) -> dict[str, Any]:
    """Count the keys that several replicas have, and the rows with such a key.

    `outlier_keys`: of the worst replica, the keys with a value that no other replica has, though others have the key.
    """
    values: dict[bytes, dict[int, int]] = {}  # for each key and output, the replicas with it
    times: dict[bytes, int] = {}
    for replica, table in enumerate(tables):
        for key, output in zip(_packed(table, keys), table["output"].tolist(), strict=True):
            among = values.setdefault(key, {})
            among[output] = among.get(output, 0) | 1 << replica
            times[key] = times.get(key, 0) + 1
    shared = {key: among for key, among in values.items() if _several(among.values())}
    return {
        "case": name,
        "rows": sum(map(len, tables)),
        "comparable_rows": sum(times[key] for key in shared),
        "keys": len(shared),
        "keys_equal": sum(len(among) == 1 for among in shared.values()),
        "values_max": max(map(len, shared.values()), default=0),
        "outlier_keys": max(
            sum(1 << replica in among.values() for among in shared.values()) for replica in range(len(tables))
        ),
        "sites": len({key[:2] for key in shared}),
        "all_sites": len(sites),
    }


def _several(replicas: Iterable[int]) -> bool:
    """Whether at least two replicas are in the union of some sets."""
    return functools.reduce(operator.or_, replicas, 0).bit_count() > 1


def _packed(table: Table, keys: tuple[str, ...]) -> Iterator[bytes]:
    """The key of each row as bytes."""
    packed = np.empty(len(table), [(key, ROW[key]) for key in keys])
    for key in keys:
        packed[key] = table[key]
    content, wide = packed.tobytes(), packed.dtype.itemsize
    return (content[start : start + wide] for start in range(0, len(content), wide))
