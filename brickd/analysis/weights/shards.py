"""Replicas: workers grouped by the shard that they declare.

Owns: which coordinates identify a shard, which workers have equal tensors, which workers hold another shard's tensors.
Must not know: when two tensors differ. Invariant: workers with different keys are never in one group, because their
checksums cannot be compared.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from brickd.analysis.weights.store import Weights
from brickd.analysis.weights.worker_tensors import Holds
from brickd.model.workers import Worker

_OF_A_SHARD = re.compile(r"(tp|pp|ep)\d+")
_MUCH_THE_SAME = 0.5  # unrelated shards share norms and biases, which are far fewer than half of the tensors
_OF_A_REPLICA = re.compile(r"(dp|cp|sp)\d+")  # context and sequence ranks have other tokens, but the same weights


def shard_of(coordinates: str) -> str:
    """Return the coordinates without `dp`, `cp` and `sp`. The first part is left out if it does not identify a shard.

    >>> shard_of("0.tp3.pp1"), shard_of("tp3"), shard_of("dp1.tp0"), shard_of("0.cp1.tp2"), shard_of("blue")
    ('pp1.tp3', 'tp3', 'tp0', 'tp2', '')
    """
    first, *rest = coordinates.split(".")
    parts = [first, *rest] if _OF_A_SHARD.fullmatch(first) else rest
    return ".".join(sorted(part for part in parts if not _OF_A_REPLICA.fullmatch(part)))


def shards_of(workers: Iterable[Worker]) -> dict[str, str]:
    """Return the shard of each worker, by uuid."""
    return {worker.reading.uuid: shard_of(worker.reading.coordinates) for worker in workers}


class Alike:
    """A group of workers that have the same shard, the same key and the same known tensors.

    Attributes:
        whole: the generation of all tensors, if the workers have read all of them; None if tensors may still be
            missing.
        counts: numbers of tensors. The key is the field of `ComparedWorker` to which the number is added.
        reasons: why tensors were not compared, each with the number of tensors.
        elsewhere: the other shard whose tensors the workers hold; None if they hold those of their own shard.
    """

    def __init__(self, key: int, shard: str, holds: Holds, whole: int | None) -> None:
        self.key, self.shard, self.holds, self.whole = key, shard, holds, whole
        self.workers: list[Worker] = []
        self.counts: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()
        self.elsewhere: str | None = None

    def now(self, number: int) -> int:
        """Return the id of a tensor's content; 0 if unknown."""
        return self.holds.now[number] if number < len(self.holds) else 0

    def changed(self, number: int) -> bool:
        """Whether a tensor has changed within its generation."""
        now = self.now(number)
        return now != 0 and now != self.holds.firsts[number]

    def lacks(self, number: int, generation: int) -> bool:
        """Whether these workers have read a complete generation of weights and do not have this tensor.

        False for workers that hold another shard's tensors, because they get their own headline.
        """
        return self.whole == generation and self.elsewhere is None and not self.now(number)

    def shared(self, other: Alike) -> float:
        """Return the fraction of the tensors of these workers that the other group also holds."""
        theirs = other.holds.now
        mine = [(number, now) for number, now in enumerate(self.holds.now) if now]
        return sum(number < len(theirs) and theirs[number] == now for number, now in mine) / max(1, len(mine))


def without_gone(holds: Holds, watched: int) -> Holds:
    """Return the tensors that the worker still watches. If more are known, those read longest ago are left out."""
    if not 0 < watched < holds.known:
        return holds
    left = holds.copy()
    known = sorted(holds.numbers(), key=holds.ticks.__getitem__)
    for number in known[: len(known) - watched]:
        left.now[number] = 0
    return left


def size(several: Sequence[Alike]) -> int:
    """Return the number of workers in these groups."""
    return sum(len(each.workers) for each in several)


Group = list[Alike]


def grouped(weights: Weights, workers: Sequence[Worker]) -> dict[tuple[int, str], Group]:
    """Group by key and shard the workers of one service that sent weights."""
    found: dict[tuple[int, str], dict[object, Alike]] = defaultdict(dict)
    wholes: dict[object, int | None] = {}  # a cache, because many workers have equal columns
    for worker in workers:
        process = worker.reading.process
        holds = weights.of(worker.reading.uuid)
        if holds is None:
            continue
        holds = without_gone(holds, process["weights"])
        key, shard = process["key"], shard_of(worker.reading.coordinates)
        known = tuple(column.tobytes() for column in (holds.generations, holds.now, holds.firsts))
        read = known, process["weights"], process["scans"] > 0
        if read not in wholes:
            wholes[read] = _whole(holds, process["weights"], process["scans"])
        whole = wholes[read]
        found[key, shard].setdefault((known, whole), Alike(key, shard, holds, whole)).workers.append(worker)
    groups = {where: list(group.values()) for where, group in found.items()}
    _place(groups)
    return groups


def _whole(holds: Holds, watched: int, scans: int) -> int | None:
    """Return the generation of a worker's weights, if it has read all weights and all records arrived."""
    generations = [generation for generation, now in zip(holds.generations, holds.now, strict=True) if now]
    complete = scans > 0 and 0 < watched <= len(generations)
    return generations[0] if complete and len(set(generations)) == 1 else None


def _usual(group: Group) -> Alike | None:
    """Return the group that has more than half of a shard's workers, if there is one."""
    most = max(group, key=lambda each: len(each.workers))
    return most if 2 * len(most.workers) > size(group) else None


def _place(groups: Mapping[tuple[int, str], Group]) -> None:
    """Find workers that hold all tensors of another shard, while the other workers of their own shard do not.

    Two shards can be almost equal, such as ranks that differ only in a few experts. Then the other workers of the shard
    also hold most of these tensors, so the match proves nothing.
    """
    usual = {where: _usual(group) for where, group in groups.items()}
    for (key, shard), group in groups.items():
        for each in group:
            others = [other for other in group if other is not each]
            if each is usual[key, shard] or any(each.shared(other) == 1 for other in others):
                continue
            for (other_key, other_shard), theirs in usual.items():
                if (other_key, other_shard != shard) != (key, True) or theirs is None or each.shared(theirs) < 1:
                    continue
                if all(other.shared(theirs) < _MUCH_THE_SAME for other in others):
                    each.elsewhere = other_shard
