"""Compares workers that hold the same shard of a model, tensor by tensor.

Owns: when two tensors may be compared, which of several workers is the outlier. Must not know: how records arrive,
screens.

Invariants:
- Tensors are compared exactly, and only within one service, shard and key.
- Tensors of two generations are never reported as different, but may be found equal, because each worker counts
  generations from its own start.
- A tensor with another dtype or shape counts as different, because it changes the worker's output. A tensor that is
  missing also counts as different, once the worker has read all its weights.
- The majority of three or more workers decides which workers are outliers. Without a majority, the outliers are the
  workers whose tensors changed in place. If no tensor changed in place, the outliers are the workers that hold another
  shard's tensors.
- The order of workers changes only the order of the findings.

A missing tensor counts as a difference, because it may be the only sign that a worker loaded a model without its
scales. But a correct worker may also lack a tensor. It may be a pipeline stage that does not declare its coordinates,
or its replica may have an adapter that it does not have. Such workers should declare their coordinates or name the
generation.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import compress

from brickd.analysis.weights.contents import content
from brickd.analysis.weights.scan_times import ScanTimes, scan_times
from brickd.analysis.weights.shards import Alike, Group, grouped, shard_of, size, without_gone
from brickd.analysis.weights.store import Weights
from brickd.analysis.weights.tensors import Tensor
from brickd.analysis.weights.verdicts import ComparedWorker, Differing, Holding, WeightOutlier, WeightsVerdict, Why
from brickd.model.workers import Worker
from brickd.shm import _reader


def judge(weights: Weights, workers: Sequence[Worker]) -> list[WeightsVerdict]:
    """Compare the live workers of each service, or its ended workers if none is alive.

    `weights` must be a copy that no other code changes.
    """
    return [_service(weights, service, _present(among)) for service, among in _services(workers).items()]


def holdings(weights: Weights, workers: Sequence[Worker]) -> Iterator[Holding]:
    """Return every tensor of the compared workers, ordered by service, shard and name."""
    for service, among in _services(workers).items():
        tensors = weights.tensors(service)
        order = sorted(range(len(tensors)), key=lambda number: _by_name(tensors[number]))
        for (key, shard), group in sorted(grouped(weights, _present(among)).items()):
            for number in order:
                held: dict[tuple[int, int], list[str]] = defaultdict(list)
                for each in group:
                    if now := each.now(number):
                        held[each.holds.generations[number], now] += [worker.name for worker in each.workers]
                for (generation, now), names in held.items():
                    of = content(weights.contents[now])
                    yield Holding(service, key, shard, tensors[number], generation, of, tuple(names))


def _services(workers: Sequence[Worker]) -> Mapping[str, Sequence[Worker]]:
    services: dict[str, list[Worker]] = defaultdict(list)
    for worker in workers:
        services[worker.service].append(worker)
    return services


def _present(workers: Sequence[Worker]) -> Sequence[Worker]:
    living = [worker for worker in workers if worker.reading.alive]
    return living or workers


def _service(weights: Weights, service: str, workers: Sequence[Worker]) -> WeightsVerdict:
    groups = grouped(weights, workers)
    judgements = [_Shard(weights, service, group, _alone(where, groups)) for where, group in groups.items()]
    several = [each for group in groups.values() for each in group]
    alike = {worker.reading.uuid: each for each in several for worker in each.workers}
    for each in several:
        for now in filter(None, each.holds.now):
            of = content(weights.contents[now])
            each.counts["nan"] += of.nan > 0
            each.counts["inf"] += of.pos_inf + of.neg_inf > 0
    rows = [row for each in judgements for row in each.rows]
    rows.sort(key=lambda row: (*_by_name(row.tensor), row.shard, row.generation))
    return WeightsVerdict(
        service,
        tuple(_found(weights, worker, alike.get(worker.reading.uuid)) for worker in workers),
        len(set[int]().union(*(each.holds.numbers() for each in several))),
        len(set[int]().union(*(each.compared for each in judgements))),
        tuple(rows),
        sum(each.alike for each in judgements),
    )


def _alone(where: tuple[int, str], groups: Mapping[tuple[int, str], Group]) -> str:
    """Return the reason why a worker without a replica is not compared."""
    key, shard = where
    return "key" if any(shard == other and key != other_key for other_key, other in groups) else "alone"


def _by_name(tensor: Tensor) -> tuple[int, str, int]:
    return tensor.layer, tensor.name, tensor.expert


def _found(weights: Weights, worker: Worker, alike: Alike | None) -> ComparedWorker:
    reading, process = worker.reading, worker.reading.process
    name, uuid, service, shard = worker.name, reading.uuid, reading.service, shard_of(reading.coordinates)
    watched, scans, key, unreadable = process["weights"], process["scans"], process["key"], refused(worker)
    holds = weights.of(reading.uuid)
    if holds is None or alike is None:
        unreadable = min(watched, unreadable)
        times = ScanTimes()
        return ComparedWorker(name, uuid, service, shard, 0, watched, scans, None, times, key, unreadable=unreadable)
    holds = without_gone(holds, watched)
    known = holds.known
    return ComparedWorker(
        name,
        uuid,
        service,
        shard,
        known,
        watched,
        scans,
        max(compress(zip(holds.ticks, holds.generations, strict=True), holds.now))[1] if known else None,
        scan_times(worker, holds),
        key,
        unreadable=min(max(0, watched - known), unreadable),
        refused=holds.refused,
        holds=alike.elsewhere,
        reasons=dict(alike.reasons),
        **alike.counts,
    )


def refused(worker: Worker) -> int:
    """Return an upper bound for the number of tensors that a worker cannot read; 0 until it has read all its weights.

    It is only a bound, because the worker counts a tensor again each time it fails to read it. The count
    includes tensors that only get checksums.
    """
    process = worker.reading.process
    return min(process["weights"], process["tensors_refused"]) if process["scans"] else 0


class _Shard:
    """Compares the workers that have the same shard and key, tensor by tensor."""

    def __init__(self, weights: Weights, service: str, group: Group, alone: str) -> None:
        self._weights, self._service, self._group, self._alone = weights, service, group, alone
        self.rows: list[Differing] = []
        self.compared: set[int] = set()
        self.alike = 0
        together = size(group) > 1
        for number, tensor in enumerate(weights.tensors(service)):
            if not (together and self._is_equal(number)):
                self._judge(number, tensor)

    def _is_equal(self, number: int) -> bool:
        """Return whether all workers hold an equal tensor of one generation (the usual case). If so, count it."""
        first, *others = self._group
        now = first.now(number)
        if not now or any(each.now(number) != now for each in others):
            return False
        generation = first.holds.generations[number]
        if any(each.holds.generations[number] != generation for each in others):
            return False
        changed = [each.changed(number) for each in self._group]
        for each, is_changed in zip(self._group, changed, strict=True):
            each.counts["compared"] += 1
            each.counts["changed"] += is_changed
        self.compared.add(number)
        self.alike += all(changed)
        return True

    def _judge(self, number: int, tensor: Tensor) -> None:
        here = [each for each in self._group if each.now(number)]
        generations: dict[int, list[Alike]] = defaultdict(list)
        for each in here:
            generations[each.holds.generations[number]].append(each)
            each.counts["changed"] += each.changed(number)
        for generation, classes in generations.items():
            own = any(each.elsewhere is None for each in classes)  # some workers have their own shard's tensors
            lacking = [each for each in self._group if own and each.lacks(number, generation)]
            if size(classes) + size(lacking) > 1:
                self._compare(number, tensor, generation, [*classes, *lacking])
                continue
            (only,) = classes
            if any(each is not only and each.now(number) == only.now(number) for each in here):
                self.compared.add(number)  # equal to a tensor of another generation
                only.counts["compared"] += 1
                continue
            alone = self._alone if self._group == [only] else "missing"
            only.reasons["generation" if len(generations) > 1 else alone] += 1
            if only.changed(number):
                self._add_row(number, tensor, generation, "changed", only.holds.firsts[number], (), classes)

    def _compare(self, number: int, tensor: Tensor, generation: int, classes: Sequence[Alike]) -> None:
        self.compared.add(number)
        contents: dict[int, list[Alike]] = defaultdict(list)
        for each in classes:
            now = each.now(number)
            each.counts["compared" if now else "missing"] += 1
            contents[now].append(each)
        if len(contents) == 1:
            self.alike += all(each.changed(number) for each in classes)
            return
        why, reference = _decided(number, contents)
        outliers = [each for each in classes if each.now(number) != reference]
        self._add_row(number, tensor, generation, why, reference, contents.get(reference, ()), outliers)

    def _add_row(
        self,
        number: int,
        tensor: Tensor,
        generation: int,
        why: Why,
        reference: int,
        agree: Sequence[Alike],
        outliers: Sequence[Alike],
    ) -> None:
        expected = self._weights.contents[reference]
        for each in outliers if why != "disagree" else (*agree, *outliers):
            each.counts["differing" if why != "disagree" else "disagreeing"] += 1
        found = []
        for each in outliers:
            other = self._weights.contents[each.now(number)]
            error = _reader.tensor_error(expected, other) if _of_one_shape(expected, other) else None
            found += [WeightOutlier(worker.name, other, error, each.changed(number)) for worker in each.workers]
        names = tuple(worker.name for each in agree for worker in each.workers)
        self.rows.append(
            Differing(self._service, outliers[0].shard, tensor, generation, why, expected, names, tuple(found))
        )


def _of_one_shape(one: bytes, other: bytes) -> bool:
    """Whether both tensors exist and have the same shape. The dtype may differ: a sketch does not depend on it."""
    return bool(one and other) and content(one).form[1:] == content(other).form[1:]


def _decided(number: int, contents: Mapping[int, Sequence[Alike]]) -> tuple[Why, int]:
    """Return the reason and the content of the reference. The content is 0 if most workers do not have the tensor.

    A worker that does not have the tensor has no vote on its content.
    """
    held = {now: classes for now, classes in contents.items() if now}
    lacking, holding = size(contents.get(0, ())), sum(map(size, held.values()))
    if lacking > holding:
        return "outlier", 0
    if lacking == holding:
        return "disagree", next(iter(held))
    if len(held) == 1:
        return "outlier", next(iter(held))
    return _among(number, held)


def _among(number: int, contents: Mapping[int, Sequence[Alike]]) -> tuple[Why, int]:
    """Return the reason and the reference. Only the workers that hold the tensor decide."""
    count = sum(map(size, contents.values()))
    most = max(contents, key=lambda now: size(contents[now]))
    if count > 2 and 2 * size(contents[most]) > count:
        return "outlier", most
    steady = [now for now, classes in contents.items() if any(not each.changed(number) for each in classes)]
    if len(steady) == 1:
        return "changed", steady[0]
    own = [now for now, classes in contents.items() if any(each.elsewhere is None for each in classes)]
    if len(own) == 1:
        return "outlier", own[0]
    return "disagree", next(iter(contents))
