"""Decides which workers should read their weights again, because a finding names them.

Owns: which workers are due (once for each finding that names them), and the rate limit. Must not know: how a worker is
asked, segments. Invariants: A worker is due at most once a minute; further findings wait until the minute is over. Any
thread may call these classes. No worker becomes due because of a finding of an earlier daemon.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple

from brickd.analysis.numerics.announce import where
from brickd.analysis.numerics.not_finite import BornAt
from brickd.analysis.numerics.online_state import DivergentSite, ServiceSite
from brickd.analysis.weights.monitor import Weighing
from brickd.base.units import SECOND
from brickd.model.survey_snapshot import Snapshot

APART_NS = 60 * SECOND


class Due(NamedTuple):
    """The workers to ask now, by uuid, and the reason."""

    service: str
    why: str
    workers: tuple[str, ...]


class Rescans:
    """The workers that should read their weights again."""

    def __init__(self, findings: Iterable[DivergentSite] = (), births: Iterable[BornAt] = ()) -> None:
        """Start with the findings and births for which the workers were already asked."""
        self._lock = threading.Lock()
        self._named: dict[Hashable, frozenset[str]] = {each.place: _workers(each) for each in findings}
        self._born = frozenset(births)
        self._waiting: dict[str, tuple[str, str]] = {}  # service and reason, by uuid
        self._asked_ns: dict[str, int] = {}
        self._seen: object = None

    def look(self, findings: Mapping[ServiceSite, DivergentSite]) -> None:
        """Take the findings for calls with equal inputs. Do nothing if this mapping was already taken."""
        if findings is self._seen:
            return
        self._seen = findings
        with self._lock:
            for gone in [about for about in self._named if isinstance(about, ServiceSite) and about not in findings]:
                del self._named[gone]
        for each in findings.values():
            self.name(each.place, each.place.service, _workers(each), f"{where(each.place)} differs")

    def look_born(self, births: Collection[BornAt]) -> None:
        """Take the places where NaN or infinities were born. Each place that is new makes its worker due."""
        before, self._born = self._born, frozenset(births)
        with self._lock:
            for each in (each for each in births if each not in before):
                self._waiting.setdefault(each.worker, (each.service, f"{each.kind} is born at {_site(each)}"))

    def name(self, about: Hashable, service: str, workers: Collection[str], why: str) -> None:
        """Set the workers (by uuid) that a finding names. Workers that the finding did not name before become due."""
        with self._lock:
            for uuid in frozenset(workers) - self._named.get(about, frozenset()):
                self._waiting.setdefault(uuid, (service, why))
            self._named[about] = frozenset(workers)

    def retain(self, services: Collection[str]) -> None:
        """Forget the findings about weights, except those about these services."""
        with self._lock:
            for gone in [about for about in self._named if isinstance(about, str) and about not in services]:
                del self._named[gone]

    def due(self, now_ns: int) -> Sequence[Due]:
        """Return the workers that are due, and remember that they have been asked."""
        with self._lock:
            self._asked_ns = {uuid: at_ns for uuid, at_ns in self._asked_ns.items() if now_ns - at_ns < APART_NS}
            groups: dict[tuple[str, str], list[str]] = defaultdict(list)
            for uuid in self._waiting.keys() - self._asked_ns.keys():
                groups[self._waiting.pop(uuid)].append(uuid)
                self._asked_ns[uuid] = now_ns
        return [Due(service, why, tuple(sorted(uuids))) for (service, why), uuids in groups.items()]


def _site(at: BornAt) -> str:
    return where(ServiceSite(at.service, at.kernel, at.layer))


def _workers(finding: DivergentSite) -> frozenset[str]:
    return frozenset(finding.outliers or finding.workers)


class WeightDoubts:
    """Takes snapshots. A worker becomes due if its weights differ or disagree."""

    def __init__(self, weighing: Weighing, rescans: Rescans) -> None:
        self._weighing, self._rescans = weighing, rescans

    def take(self, snapshot: Snapshot) -> None:
        """Make those workers due whose weights differ or disagree in this snapshot."""
        judged = self._weighing.judged(snapshot.survey.workers)
        self._rescans.retain({each.service for each in judged})
        for each in judged:
            unequal = [found.uuid for found in each.workers if found.state in ("differs", "disagrees")]
            self._rescans.name(each.service, each.service, unequal, "weights differ")
