"""The result of comparing workers' weights.

Owns: the parts of a verdict, and what follows from them. Must not know: how a verdict was computed, sentences, screens.
Invariant: wherever the number of compared tensors is shown, the number of tensors that were not compared is shown too.
"""

from __future__ import annotations

import functools
import operator
from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple

from brickd.analysis.weights.contents import TensorContent, content
from brickd.analysis.weights.scan_times import ScanTimes
from brickd.analysis.weights.tensors import Tensor

Why = Literal["outlier", "changed", "disagree"]
State = Literal["differs", "disagrees", "equal", "not comparable", "unknown"]
Verdict = Literal["equal", "differ", "nothing"]


class WeightOutlier(NamedTuple):
    """A worker whose tensor differs from the reference.

    Attributes:
        content: the record of the tensor; empty if the worker has read all weights and does not have this tensor.
        error: the estimated relative error; None if unknown or undefined, such as for another shape.
        changed: whether the tensor changed within its generation.
    """

    worker: str
    content: bytes
    error: float | None
    changed: bool

    @property
    def held(self) -> TensorContent | None:
        """The tensor's content, decoded."""
        return content(self.content) if self.content else None


class Differing(NamedTuple):
    """A tensor that differs between workers in content or form, or is missing in some of them.

    Attributes:
        why: how the outliers are identified: by the majority ("outlier") or by a change in place ("changed"). If it is
            "disagree", the outliers cannot be identified, and the first worker is the reference.
        reference: the content with which the others are compared; empty if most workers do not have the tensor.
        agree: the workers with the reference; empty if a worker without replicas changed the tensor in place.
        outliers: the other workers.
    """

    service: str
    shard: str
    tensor: Tensor
    generation: int
    why: Why
    reference: bytes
    agree: tuple[str, ...]
    outliers: tuple[WeightOutlier, ...]

    @property
    def wanted(self) -> TensorContent | None:
        """The content of the reference, decoded."""
        return content(self.reference) if self.reference else None

    @property
    def lacking(self) -> int:
        """The number of workers without the tensor."""
        return sum(not outlier.content for outlier in self.outliers) + (0 if self.reference else len(self.agree))

    @property
    def names(self) -> tuple[str, ...]:
        """All compared workers."""
        return (*self.agree, *(each.worker for each in self.outliers))


class Holding(NamedTuple):
    """Workers of a shard that have the same content of a tensor."""

    service: str
    key: int
    shard: str
    tensor: Tensor
    generation: int
    content: TensorContent
    workers: tuple[str, ...]


class ComparedWorker(NamedTuple):
    """A worker compared with its replicas.

    Attributes:
        shard: the shard that the worker declares.
        known: the number of tensors with a known content.
        watched: the number of tensors whose changes the worker reports.
        scans: how many times the worker has read all its tensors.
        generation: the newest generation of its weights.
        times: when the worker read its weights.
        key: the name of the key of its checksums.
        compared: the number of compared tensors.
        differing: the number of tensors in which the worker is the outlier.
        disagreeing: the number of tensors for which no content has a majority.
        changed: the number of tensors that changed within their generation.
        missing: the number of tensors that replicas of the same generation have and that this worker does not have,
            although it has read all its weights.
        nan: the number of tensors with NaN.
        inf: the number of tensors with an infinity.
        unreadable: the number of tensors that the worker cannot read, as far as its counts show.
        refused: the number of the worker's records for which the store had no room.
        holds: the other shard whose tensors the worker holds; None if it holds those of its own shard.
        reasons: why tensors were not compared, each with the number of tensors.
    """

    name: str
    uuid: str
    service: str
    shard: str
    known: int
    watched: int
    scans: int
    generation: int | None
    times: ScanTimes
    key: int
    compared: int = 0
    differing: int = 0
    disagreeing: int = 0
    changed: int = 0
    missing: int = 0
    nan: int = 0
    inf: int = 0
    unreadable: int = 0
    refused: int = 0
    holds: str | None = None
    reasons: Mapping[str, int] = MappingProxyType({})

    @property
    def unread(self) -> int:
        """Return the number of tensors whose content is not known yet."""
        return max(0, self.watched - self.known - self.unreadable)

    @property
    def load_only(self) -> int:
        """The number of known tensors that are read only at load."""
        return self.times.load_only.bit_count()

    @property
    def state(self) -> State:
        """The state that follows from the counts."""
        if self.differing or self.holds is not None:
            return "differs"
        if self.disagreeing:
            return "disagrees"
        if self.compared:
            return "equal"
        return "not comparable" if self.known else "unknown"


class WeightsVerdict(NamedTuple):
    """The verdict on a service.

    Attributes:
        tensors: the number of tensors that any worker of the service has.
        compared: the number of tensors that were compared between at least two workers.
        differing: the tensors that differ, by layer and name.
        alike: the number of tensors that changed in place in all workers, in the same way.
    """

    service: str
    workers: tuple[ComparedWorker, ...]
    tensors: int
    compared: int
    differing: tuple[Differing, ...]
    alike: int

    @property
    def equal(self) -> int:
        """The number of workers in the state `equal`."""
        return sum(worker.state == "equal" for worker in self.workers)

    @property
    def unequal(self) -> tuple[ComparedWorker, ...]:
        """The workers whose state is "differs" or "disagrees"."""
        return tuple(worker for worker in self.workers if worker.state in ("differs", "disagrees"))

    @property
    def verdict(self) -> Verdict:
        """The verdict on all workers together."""
        return "differ" if self.unequal else "equal" if self.equal else "nothing"

    @property
    def age_ns(self) -> int | None:
        """Every compared worker has read all its tensors within this time; None if unknown."""
        ages = [times.age_ns for times in self._times()]
        known = [age for age in ages if age is not None]
        return max(known) if len(known) == len(ages) and known else None

    @property
    def rescanned_age_ns(self) -> int | None:
        """The same for the tensors that are read again after the load; None if unknown, or if there are none."""
        ages = [times.rescanned_age_ns for times in self._times() if not times.overdue]
        return None if self.age_ns is None else max((age for age in ages if age is not None), default=None)

    @property
    def load_only(self) -> int:
        """The number of tensors that any worker reads only at load."""
        return functools.reduce(operator.or_, (worker.times.load_only for worker in self.workers), 0).bit_count()

    def _times(self) -> list[ScanTimes]:
        return [worker.times for worker in self.workers if worker.compared or worker.differing]

    def reasons(self) -> Counter[str]:
        """For each reason, return how many tensors were not compared, summed over all workers."""
        return sum((Counter(worker.reasons) for worker in self.workers), Counter())

    def later(self, by_ns: int) -> WeightsVerdict:
        """The verdict as it is `by_ns` later if nothing changes."""
        return self._replace(workers=tuple(each._replace(times=each.times.later(by_ns)) for each in self.workers))
