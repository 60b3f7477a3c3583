"""The results of comparing workers: stragglers, suspects that are not named, the coverage.

Owns: how a finding is written as JSON and as a sentence. Must not know: how a finding is reached, screens. Invariant: a
verdict without a straggler says what was compared.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, NamedTuple

from brickd.base.cpu_sharing import Sharing
from brickd.base.timestamps import Moment, local, rfc3339
from brickd.base.units import duration, percent, plural

STALE_NS = 60_000_000_000
_THROTTLED_MIN = 0.01  # throttling for a smaller fraction of the time is not mentioned

Confidence = Literal["low", "medium", "high"]


class About(NamedTuple):
    """The worker and the brick of a finding."""

    service: str
    worker: str
    brick: str


@dataclass(frozen=True, slots=True)
class WorkerRow:
    """One worker in a brick, over all slots.

    Attributes:
        mean_ns: the mean self time of a call.
        excess_percent: how much slower the worker is than the median. In a collective, the value is how much less the
            worker waits than the median, in percent of the time between two calls. None if unknown.
        score: the excess divided by the deviation that can be due to chance and to usual differences.
    """

    worker: str
    mean_ns: float
    calls: int
    elements_per_call: float
    excess_percent: float | None = None
    score: float | None = None

    def document(self) -> dict[str, Any]:
        """The row as JSON."""
        return {
            "worker": self.worker,
            "mean_ns": round(self.mean_ns),
            "excess_percent": None if self.excess_percent is None else round(self.excess_percent, 2),
            "calls": self.calls,
            "elements_per_call": round(self.elements_per_call, 1),
            "score": None if self.score is None else round(self.score, 2),
        }


@dataclass(frozen=True, slots=True)
class Straggler:
    """A slow worker.

    Attributes:
        outside: true if the brick is a collective in which the others wait for the worker, but no record shows why.
        row: the worker's row.
        median_ns: the median of the mean call times of all workers.
        cost_ns_per_s: the cost per second of wall time.
        since: the start of the first slot since which the worker has been slow in every slot.
        confidence: "low" if there are only four slots or only three workers, or if a worker has fewer than 100 calls.
            "high" if there are six slots and at least five workers, each worker has at least 500 calls, and the score
            is at least twice the threshold.
        rows: the rows of all workers, the slowest first; in a collective, the worker that waits least comes first.
        corroborated_by: the collectives in which the others wait for the worker.
    """

    about: About
    category: str
    outside: bool
    row: WorkerRow
    median_ns: float
    cost_ns_per_s: float
    since: Moment
    confidence: Confidence
    rows: tuple[WorkerRow, ...]
    corroborated_by: tuple[str, ...] = ()

    def document(self, *, rows: bool = True) -> dict[str, Any]:
        """The finding as JSON, with or without the rows of all workers."""
        return {
            **self.about._asdict(),
            "category": self.category,
            "outside": self.outside,
            **{name: value for name, value in self.row.document().items() if name != "worker"},
            "median_ns": round(self.median_ns),
            "others": len(self.rows) - 1,
            "cost_ns_per_s": round(self.cost_ns_per_s),
            "cost_percent": round(self.cost_ns_per_s / 1e7, 3),
            "since": rfc3339(self.since.at_ns),
            "confidence": self.confidence,
            "corroborated_by": list(self.corroborated_by),
            **({"workers": [row.document() for row in self.rows]} if rows else {}),
        }


@dataclass(frozen=True, slots=True)
class WaitingWorker:
    """A worker that waits long for a processor: longer than the others, or longer than an absolute limit.

    Attributes:
        waited: how long all threads of the worker waited, as a fraction of the elapsed time.
        others: the median of `waited` over all workers; None if they were not compared.
        since: as in `Straggler`.
        sharing: the only processor that the worker may use, and another process that runs there; None if it may use
            several processors.
        throttled: how long the worker's control group was throttled, as a fraction of the elapsed time; None if
            unknown.
    """

    service: str
    worker: str
    waited: float
    others: float | None
    since: Moment
    sharing: Sharing | None = None
    throttled: float | None = None

    @property
    def about(self) -> About:
        """The subject of the finding: the worker alone, without a brick."""
        return About(self.service, self.worker, "")

    @property
    def text(self) -> str:
        """The finding as a sentence."""
        text = f"{self.worker} waits for a processor {percent(100 * self.waited)} of its time"
        if self.others is not None:
            text += f" (median of all: {percent(100 * self.others)})"
        if self.sharing is not None and self.sharing.pid is not None:
            text += f"; it may use only CPU {self.sharing.cpu}, which it shares with PID {self.sharing.pid}"
        elif self.sharing is not None:
            text += f"; it may use only CPU {self.sharing.cpu}"
        if self.throttled is not None and self.throttled >= _THROTTLED_MIN:
            text += f"; its cgroup was throttled {percent(100 * self.throttled)} of the time"
        return text

    def document(self) -> dict[str, Any]:
        """The finding as JSON."""
        return {
            "service": self.service,
            "worker": self.worker,
            "waited_percent": round(100 * self.waited, 2),
            "others_percent": None if self.others is None else round(100 * self.others, 2),
            "since": rfc3339(self.since.at_ns),
            "cpu": None if self.sharing is None else self.sharing.cpu,
            "shares_with_pid": None if self.sharing is None else self.sharing.pid,
            "throttled_percent": None if self.throttled is None else round(100 * self.throttled, 2),
            "text": self.text,
        }


@dataclass(frozen=True, slots=True)
class Suspect:
    """A worker that stands out in a brick; `reason` says why it is not named, or is "" if it is named."""

    finding: Straggler
    reason: str

    def document(self) -> dict[str, Any]:
        """The suspect as JSON."""
        return {**self.finding.about._asdict(), **self.finding.row.document(), "reason": self.reason}


@dataclass(frozen=True, slots=True)
class Coverage:
    """The coverage of a service: how many workers and bricks were compared.

    Attributes:
        workers: the number of live workers.
        judged: the number of bricks in which workers were compared with each other.
        few_workers: the number of bricks with fewer than three workers.
        few_samples: the number of bricks with too few calls.
        small: the number of bricks that take too little time to matter, or that exceed the limit of bricks.
        unjudged: the number of bricks whose category is one in which time reveals nothing about a worker.
        bounded: the number of bricks whose times are only bounds, not measurements.
        waits_unknown: the number of workers whose waiting time for a processor is unknown.
    """

    service: str
    workers: int
    waits_unknown: int
    judged: int
    few_workers: int
    few_samples: int
    small: int
    unjudged: int
    bounded: int

    def document(self) -> dict[str, Any]:
        """The counts as JSON."""
        document = asdict(self)
        head = {name: document.pop(name) for name in ("service", "workers", "waits_unknown")}
        return head | {f"bricks_{why}": count for why, count in document.items()}


@dataclass(frozen=True, slots=True)
class StragglerVerdict:
    """The result of a comparison.

    Attributes:
        findings: the stragglers, the costliest first.
        passed: the workers that stand out but are not named.
        slots_wanted: the number of slots that a verdict needs.
        waiting: the workers that wait for a processor, the longest waiting time first.
        age_ns: the time since the last look.
    """

    findings: tuple[Straggler, ...]
    passed: tuple[Suspect, ...]
    coverage: tuple[Coverage, ...]
    slots: int
    slots_wanted: int
    length_ns: int
    ended: Moment
    age_ns: int = 0
    waiting: tuple[WaitingWorker, ...] = ()

    @property
    def current(self) -> bool:
        """Whether the last look is so recent that the findings are probably still true."""
        return self.age_ns < STALE_NS

    def at(self, now_ns: int) -> StragglerVerdict:
        """Return the verdict at a later time. If the last look is then too old, the verdict has no findings."""
        aged = replace(self, age_ns=max(0, now_ns - self.ended.now_ns))
        return aged if aged.current else replace(aged, findings=(), passed=(), waiting=())

    def about(self, workers: Collection[str]) -> StragglerVerdict:
        """Return the part of the verdict about some of the workers."""
        findings = tuple(each for each in self.findings if each.about.worker in workers)
        passed = tuple(each for each in self.passed if each.finding.about.worker in workers)
        waiting = tuple(each for each in self.waiting if each.worker in workers)
        return replace(self, findings=findings, passed=passed, waiting=waiting)

    def headlines(self) -> list[tuple[Straggler, str]]:
        """Return each straggler's costliest finding, with a sentence about all of its findings."""
        return [(found[0], _headline(found, self.ended.at_ns)) for found in of_workers(self.findings).values()]


def _headline(found: Sequence[Straggler], now_ns: int) -> str:
    since_ns = min(finding.since for finding in found).at_ns
    more = f" (and in {plural(len(found) - 1, 'more brick')})" if len(found) > 1 else ""
    return f"{found[0].about.worker} slow since {local(since_ns, now_ns)}: {_what(found[0])}{more}"


def _what(finding: Straggler) -> str:
    cost = f"{duration(finding.cost_ns_per_s)}/s"
    if finding.outside:
        about = finding.about
        return (
            f"the others wait {cost} for {about.worker} in {about.brick}; none of its instrumented bricks explains this"
        )
    excess = finding.row.excess_percent
    return f"{finding.about.brick} +{percent(excess)}, costs {cost}"


def of_workers(findings: Iterable[Straggler]) -> dict[tuple[str, str], list[Straggler]]:
    """Return the findings by worker, in the order of each worker's first finding."""
    found: dict[tuple[str, str], list[Straggler]] = {}
    for finding in findings:
        found.setdefault(finding.about[:2], []).append(finding)
    return found
