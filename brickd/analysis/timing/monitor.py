"""Stragglers while workers run: snapshots are compared in turn, changes are reported.

Owns: the last looks, who is named since when, the events of their coming and going. Must not know: how one is judged,
who takes snapshots. Invariants: what is judged is replaced as a whole, so that any thread may read it; it is bounded by
the rows of a look and the number of looks.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace

from brickd.analysis.timing.findings import About, StragglerVerdict, of_workers
from brickd.analysis.timing.stragglers import SLOTS, judge
from brickd.analysis.timing.worker_series import Life, SlotLook, look
from brickd.base.timestamps import Moment
from brickd.base.units import duration
from brickd.model.event_log import LogEvent
from brickd.model.survey_snapshot import Snapshot
from brickd.model.worker_names import as_argument
from brickd.model.worker_totals import slot


class Lookout:
    """Takes snapshots, and knows the stragglers."""

    def __init__(self, log_event: LogEvent) -> None:
        self._log_event = log_event
        self._before: Snapshot | None = None
        self._looks: deque[SlotLook] = deque(maxlen=SLOTS)
        self._named: dict[About, Moment] = {}
        self._judged = replace(judge(()), ended=Moment.now())

    def judged(self) -> StragglerVerdict:
        """The verdict at the last snapshot."""
        return self._judged

    def take(self, snapshot: Snapshot) -> None:
        """Compare a snapshot with the last one."""
        before, self._before = self._before, snapshot
        if before is None:
            self._judged = replace(self._judged, ended=snapshot.moment)
            return
        workers = snapshot.survey.workers
        lives = {each.name: Life(each.service, each.reading.uuid) for each in workers if each.reading.alive}
        self._looks.append(look(slot(before, snapshot), lives))
        was, self._judged = self._judged, judge(tuple(self._looks), self._named)
        self._named = {finding.about: finding.since for finding in self._judged.findings}
        self._report_changes(was, self._judged)

    def _report_changes(self, was: StragglerVerdict, now: StragglerVerdict) -> None:
        before, after = of_workers(was.findings), of_workers(now.findings)
        for finding, text in now.headlines():
            service, worker, _ = finding.about
            if (service, worker) not in before:
                self._report("straggler", text, service, worker)
        for (service, worker), found in before.items():
            if (service, worker) not in after:
                for_ns = now.ended.now_ns - min(finding.since for finding in found).now_ns
                text = f"{worker} is not slow any more: {found[0].about.brick}, for {duration(for_ns)}"
                self._report("straggler_gone", text, service, worker)

    def _report(self, kind: str, text: str, service: str, worker: str) -> None:
        command = f"brickd stragglers {as_argument(service)}"
        self._log_event(kind, text, service=service, worker=worker, command=command)
