"""Tables of the rows that replicas computed, and what equal inputs, histories and lineages imply.

Owns: the form of a table, by which keys rows of different replicas are compared. Must not know: torch, brickd.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

Table = np.ndarray[Any, np.dtype[np.void]]
ROW = np.dtype(
    [
        ("site", np.uint16),
        ("position", np.uint16),
        ("step", np.uint32),
        ("called", np.uint32),
        ("reached", np.bool_),  # the experts that were asked for, if any were
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


def joined(tables: Sequence[Table]) -> Table:
    """Join the tables of one replica."""
    return np.concatenate(tables) if tables else np.zeros(0, ROW)


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


def known_elsewhere(mine: Table, others: Sequence[Table], *, lineage: bool) -> int:
    """The number of rows with a history (and, if wanted, a lineage) that another replica had, too."""
    keys = ("position", "history", *(("shapes",) if lineage else ()))
    known = {key for table in others for key in _packed(table, keys)}
    return sum(key in known for key in _packed(mine, keys))


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
