"""Who is right of those that had the same to do.

Owns: the rule. Must not know: who the workers are, where and when. Invariants: where most contradict themselves nobody
is named; nobody is named either where no more than half say the same; who agrees with all others is never named.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple


class Opinions(NamedTuple):
    """What a group comes to.

    Attributes:
        workers: who is in it.
        contradict: who of them says now this, now that.
        outliers: who is not with the others; nobody where it is not known who is right.
        against: a print of who is; where it is not known of the first worker. None: nothing can be compared.
        other: a print of another that says something else; None with `against`.
        contradiction: of one who contradicts himself a print of what he says most often, and one of what he says else.
    """

    workers: frozenset[int]
    contradict: frozenset[int]
    outliers: frozenset[int] = frozenset()
    against: int | None = None
    other: int | None = None
    contradiction: tuple[int, int] | None = None


def opinions(group: Sequence[tuple[int, int, int, int]]) -> Opinions:
    """Judge a group: of each worker and output how often it said so, and the number of the newest print that does."""
    said: dict[int, list[tuple[int, int, int]]] = {}
    for worker, output, times, newest in group:
        said.setdefault(worker, []).append((output, times, newest))
    steady = {worker: rows[0] for worker, rows in said.items() if len(rows) == 1}
    workers, contrary = frozenset(said), frozenset(said.keys() - steady.keys())
    nobody = Opinions(workers, contrary, contradiction=_contradiction(said[min(contrary)]) if contrary else None)
    once = len(steady) == 1 and next(iter(steady.values()))[1] == 1  # whether that one would repeat nobody knows
    if len(workers) < 2 or 2 * len(contrary) > len(workers) or once:
        return nobody
    right = _right([output for output, _, _ in steady.values()])
    if right is None:
        leader = min(steady)
        first, _, against = steady[leader]
        other = max(newest for output, _, newest in steady.values() if output != first)
        return nobody._replace(against=against, other=other)
    unlike = [(newest, worker) for worker, output, _, newest in group if output != right]
    if not unlike:
        return nobody
    against = max(newest for output, _, newest in steady.values() if output == right)
    return nobody._replace(outliers=frozenset(worker for _, worker in unlike), against=against, other=max(unlike)[0])


def _contradiction(rows: Sequence[tuple[int, int, int]]) -> tuple[int, int]:
    most, *others = sorted(rows, key=lambda row: -row[1])
    return most[2], others[0][2]


def _right(outputs: Sequence[int]) -> int | None:
    """What all say who do not contradict themselves; else what more than half of them do."""
    ((output, votes),) = Counter(outputs).most_common(1)
    return output if 2 * votes > len(outputs) else None
