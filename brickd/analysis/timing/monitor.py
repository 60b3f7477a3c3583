"""Stragglers while workers run: snapshots are compared in turn, changes are reported.

Owns: the last looks, who is named since when, the events of their coming and going. Must not know: how one is judged,
who takes snapshots. Invariants: what is judged is replaced as a whole, so that any thread may read it; it is bounded by
the rows of a look and the number of looks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container
from dataclasses import replace

from brickd.analysis.timing.findings import About, StragglerVerdict, of_workers
from brickd.analysis.timing.stragglers import SLOTS, judge
from brickd.analysis.timing.worker_series import COST_MIN, Host, Life, SlotLook, look
from brickd.base.cpu_sharing import Sharing
from brickd.base.timestamps import Moment
from brickd.base.units import duration
from brickd.model.event_log import LogEvent
from brickd.model.survey_snapshot import Snapshot
from brickd.model.worker_names import as_argument
from brickd.model.worker_totals import slot
from brickd.model.workers import Worker


class Lookout:
    """Takes snapshots, and knows the stragglers; `sharing`: who else runs on a process's only processor."""

    def __init__(self, log_event: LogEvent, sharing: Callable[[int], Sharing | None] = lambda _: None) -> None:
        self._log_event, self._sharing = log_event, sharing
        self._before: Snapshot | None = None
        self._looks: deque[SlotLook] = deque(maxlen=SLOTS)
        self._named: dict[About, Moment] = {}
        self._judged = replace(judge(()), ended=Moment.now())

    def judged(self) -> StragglerVerdict:
        """The verdict at the last snapshot."""
        return self._judged

    def newest(self) -> SlotLook | None:
        """The newest slot, compared; None before the first one."""
        return self._looks[-1] if self._looks else None

    def take(self, snapshot: Snapshot) -> None:
        """Compare a snapshot with the last one."""
        before, self._before = self._before, snapshot
        if before is None:
            self._judged = replace(self._judged, ended=snapshot.moment)
            return
        workers = snapshot.survey.workers
        alive = {each.name: each for each in workers if each.reading.alive}
        lives = {name: Life(each.service, each.reading.uuid) for name, each in alive.items()}
        hosts = {name: _host(each) for name, each in alive.items()}
        self._looks.append(look(slot(before, snapshot, COST_MIN), lives, hosts))
        was, judged = self._judged, judge(tuple(self._looks), self._named)
        waiting = (replace(each, sharing=self._sharing(hosts[each.worker].pid or 0)) for each in judged.waiting)
        self._judged = replace(judged, waiting=tuple(waiting))
        self._named = {each.about: each.since for each in judged.findings}
        self._named |= {each.about: each.since for each in judged.waiting}
        self._report_changes(was, self._judged, lives)

    def _report_changes(self, was: StragglerVerdict, now: StragglerVerdict, lives: Container[str]) -> None:
        before, after = of_workers(was.findings), of_workers(now.findings)
        for finding, text in now.headlines():
            service, worker, _ = finding.about
            if (service, worker) not in before:
                self._report("straggler", text, service, worker)
        for (service, worker), found in before.items():
            if (service, worker) not in after and worker in lives:  # that a worker ended is no recovery
                for_ns = now.ended.now_ns - min(finding.since for finding in found).now_ns
                text = f"{worker} is not slow any more: {found[0].about.brick}, for {duration(for_ns)}"
                self._report("straggler_gone", text, service, worker)

        waited, waits = {each.about: each for each in was.waiting}, {each.about for each in now.waiting}
        for each in now.waiting:
            if each.about not in waited:
                self._report("waits_for_cpu", each.text, each.service, each.worker)
        for about, each in waited.items():
            if about not in waits:
                for_ns = now.ended.now_ns - each.since.now_ns
                text = f"{each.worker} does not wait for a processor any more, after {duration(for_ns)}"
                self._report("waits_for_cpu_gone", text, each.service, each.worker)

    def _report(self, kind: str, text: str, service: str, worker: str) -> None:
        command = f"brickd stragglers {as_argument(service)}"
        self._log_event(kind, text, service=service, worker=worker, command=command)


def _host(worker: Worker) -> Host:
    threads = sum(lane["begun"] > 0 for _, lane, _ in worker.reading.lanes)
    ran, waited = (None, None) if worker.usage is None else (worker.usage.ran, worker.usage.waited)
    return Host(max(1, threads), ran, waited, worker.reading.pid)
