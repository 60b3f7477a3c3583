"""Events that report when a class of evidence about a service becomes unproven, and when it is proven again.

Owns: when a change is reported, and in which words. Must not know: how a verdict is formed, where the reported classes
are stored. Invariants: A change is reported once, even if the daemon restarts. A class is reported as proven only after
it was reported as unproven. A service without a live worker is forgotten, because stopping a service is not an event.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from brickd.analysis.evidence_verdicts import Comparisons, EvidenceVerdict, verdicts
from brickd.analysis.numerics.online_state import Compared
from brickd.analysis.weights.monitor import Weighing
from brickd.base.json_values import listed, optional, text, unicode
from brickd.base.thresholds import Thresholds
from brickd.base.units import plural
from brickd.model.event_log import LogEvent
from brickd.model.survey_snapshot import Snapshot
from brickd.model.worker_names import as_argument

REPORTED_MAX = 4_096

# A service and a class of evidence.
About = tuple[str | None, str]

# What each class compares. All other classes compare fingerprints.
_UNITS = {"weights": "tensor", "row": "row", "history": "row"}


class EvidenceNews:
    """Receives each snapshot, and reports the classes that are unproven.

    Args:
        reported: the classes that the previous daemon reported as unproven.
        keep: called with all reported classes whenever they change.
    """

    def __init__(
        self,
        compared: Callable[[], Compared],
        weighing: Weighing,
        log_event: LogEvent,
        thresholds: Callable[[], Thresholds],
        reported: Collection[About],
        keep: Callable[[frozenset[About]], object],
    ) -> None:
        self._compared, self._weighing, self._log_event = compared, weighing, log_event
        self._thresholds = thresholds
        self._since: dict[About, int] = {}
        self._reported, self._keep = set(reported), keep

    def take(self, snapshot: Snapshot) -> None:
        """Report changes in services that have a live worker."""
        workers = [worker for worker in snapshot.survey.workers if worker.together == 1]
        living = {each.service for each in workers if each.reading.alive}
        workers = [each for each in workers if each.service in living]
        of = Comparisons(self._compared(), self._weighing.judged(snapshot.survey.workers), snapshot.at_ns)
        found = {(each.service, each.evidence): each for each in verdicts(of, workers) if each.recorded}
        self._since = {about: ns for about, ns in self._since.items() if about in found and found[about].unproven}
        before, for_ns = frozenset(self._reported), self._thresholds().ns("unproven_for")
        self._reported &= found.keys()
        for about, verdict in found.items():
            if not verdict.unproven:
                self._prove(about, verdict)
                continue
            since_ns = self._since.setdefault(about, snapshot.now_ns)
            if snapshot.now_ns - since_ns >= for_ns and about not in self._reported:
                self._reported.add(about)
                text = f"{_called(verdict)} are unproven: {verdict.why}"
                self._log_event("evidence_unproven", text, service=verdict.service, command=verdict.command)
        if self._reported != before:
            self._keep(frozenset(self._reported))

    def _prove(self, about: About, verdict: EvidenceVerdict) -> None:
        if about not in self._reported:
            return
        self._reported.discard(about)
        if verdict.verdict == "equal" and verdict.service is not None:
            what = plural(verdict.compared, _UNITS.get(verdict.evidence, "fingerprint"))
            text = f"{_called(verdict)} are proven equal again: {what} compared"
            command = f"brickd coverage {as_argument(verdict.service)}"
            self._log_event("evidence_proven", text, service=verdict.service, command=command)


def _called(verdict: EvidenceVerdict) -> str:
    what = {"input": "outputs", "row": "rows", "history": "histories"}.get(verdict.evidence, verdict.evidence)
    return what if verdict.service is None else f"{what} of {verdict.service}"


def plain(reported: Collection[About]) -> list[list[Any]]:
    """Encode the reported classes as JSON."""
    return [[*about] for about in reported][:REPORTED_MAX]


def of_document(rows: Any) -> frozenset[About]:
    """Decode the output of `plain`."""
    return frozenset((optional(service, unicode), text(evidence)) for service, evidence in listed(rows, REPORTED_MAX))
