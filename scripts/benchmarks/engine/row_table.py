"""Tables of the rows that replicas computed, and what follows from equal inputs, histories and lineages.

Owns: the form of a table, and the keys by which the rows of different replicas are compared. Must not know: torch,
brickd.
"""

from __future__ import annotations

import functools
import operator
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

Table = np.ndarray[Any, np.dtype[np.void]]
ROW = np.dtype(
    [
        ("site", np.uint16),
        ("position", np.uint16),
        ("step", np.uint32),
        ("called", np.uint32),  # the number of rows in the call
        ("place", np.uint32),  # the place of the row in the call
        ("changed", np.bool_),  # whether the fault changed the row at its site, or this is not known
        *((name, np.uint64) for name in ("history", "borders", "widths", "shapes", "input", "output")),
    ]
)
_SITE_BYTES = ROW["site"].itemsize  # each key begins with its site
_KEYS_MIN = 3  # with fewer keys of a replica at a site, no share is computed
# For each comparison, the fields that must be equal.
KEYS = {
    "equal input row": ("site", "input"),
    "equal input row, calls of as many rows": ("site", "input", "called"),
    "equal input row, place in a call of as many rows": ("site", "input", "called", "place"),
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
    """Count the keys that occur in several replicas, and the rows that have one of these keys.

    `outlier_keys`: for one replica, the number of shared keys at which it has a value that no other replica has. The
    replica with the largest number is reported.
    `outlier_share`: for one replica at one site, the share of its shared keys at which it has such a value. The largest
    share is reported.
    """
    values: dict[bytes, dict[int, int]] = {}  # for each key and output, the replicas that have it, as bits
    times: Counter[bytes] = Counter()
    for replica, table in enumerate(tables):
        for key, output in zip(_packed(table, keys), table["output"].tolist(), strict=True):
            among = values.setdefault(key, {})
            among[output] = among.get(output, 0) | 1 << replica
            times[key] += 1
    shared = {key: among for key, among in values.items() if _union(among.values()).bit_count() > 1}
    known, outliers = Counter[tuple[int, bytes]](), Counter[tuple[int, bytes]]()
    for key, among in shared.items():
        for replica in range(len(tables)):
            known[replica, key[:_SITE_BYTES]] += _union(among.values()) >> replica & 1
            outliers[replica, key[:_SITE_BYTES]] += 1 << replica in among.values()
    shares = [count / known[place] for place, count in outliers.items() if known[place] >= _KEYS_MIN]
    return {
        "case": name,
        "rows": sum(map(len, tables)),
        "comparable_rows": sum(times[key] for key in shared),
        "keys": len(shared),
        "keys_equal": sum(len(among) == 1 for among in shared.values()),
        "values_max": max(map(len, shared.values()), default=0),
        "outlier_keys": max(
            sum(count for (of, _), count in outliers.items() if of == replica) for replica in range(len(tables))
        ),
        "outlier_share": max(shares, default=0.0),
        "sites": len({key[:_SITE_BYTES] for key in shared}),
        "all_sites": len(sites),
    }


def known_elsewhere(mine: Table, others: Sequence[Table], *, lineage: bool) -> int:
    """The number of rows whose history (and, if wanted, lineage) another replica also had."""
    keys = ("position", "history", *(("shapes",) if lineage else ()))
    known = {key for table in others for key in _packed(table, keys)}
    return sum(key in known for key in _packed(mine, keys))


def _union(replicas: Iterable[int]) -> int:
    """Return the union of sets of replicas. A set is a number with one bit for each replica."""
    return functools.reduce(operator.or_, replicas, 0)


def _packed(table: Table, keys: tuple[str, ...]) -> Iterator[bytes]:
    """The key of each row as bytes."""
    packed = np.empty(len(table), [(key, ROW[key]) for key in keys])
    for key in keys:
        packed[key] = table[key]
    content, wide = packed.tobytes(), packed.dtype.itemsize
    return (content[start : start + wide] for start in range(0, len(content), wide))
