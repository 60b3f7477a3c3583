"""Stragglers among running workers: compares successive snapshots and reports changes.

Owns: the last looks; which workers are named, and since when; the events when a worker becomes named or unnamed. Must
not know: how a straggler is judged, what takes snapshots. Invariants: The verdict is immutable, so any thread may read
it. The size of the verdict is bounded by the rows of a look and the number of looks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace

from brickd.analysis.problem import problem_id
from brickd.analysis.timing.findings import About, StragglerVerdict, WaitingWorker, of_workers
from brickd.analysis.timing.stragglers import SLOTS, judge
from brickd.analysis.timing.worker_series import COST_MIN, Host, Life, SlotLook, look
from brickd.base.cpu_sharing import Sharing
from brickd.base.thresholds import Thresholds
from brickd.base.timestamps import Moment
from brickd.base.units import duration
from brickd.model.event_log import LogEvent
from brickd.model.survey_snapshot import Snapshot
from brickd.model.worker_names import as_argument
from brickd.model.worker_totals import slot
from brickd.model.workers import Usage, Worker

_SLOW, _WAITS = "", "processor"  # the subjects of problems


class Lookout:
    """Receives each snapshot, and keeps the stragglers. `sharing` finds another process on a worker's only CPU."""

    def __init__(
        self,
        log_event: LogEvent,
        sharing: Callable[[Mapping[int, int]], Mapping[int, int]] = lambda _: {},
        thresholds: Callable[[], Thresholds] = Thresholds,
    ) -> None:
        self._log_event, self._sharing, self._thresholds = log_event, sharing, thresholds
        self._before: Snapshot | None = None
        self._looks: deque[SlotLook] = deque(maxlen=SLOTS)
        self._named: dict[About, Moment] = {}
        self._judged = replace(judge(()), ended=Moment.now())

    def judged(self) -> StragglerVerdict:
        """The verdict at the last snapshot."""
        return self._judged

    def newest(self) -> SlotLook | None:
        """The newest compared slot; None before the first one."""
        return self._looks[-1] if self._looks else None

    def take(self, snapshot: Snapshot) -> None:
        """Compare a snapshot with the previous one."""
        before, self._before = self._before, snapshot
        if before is None:
            self._judged = replace(self._judged, ended=snapshot.moment)
            return
        workers = snapshot.survey.workers
        alive = {each.name: each for each in workers if each.reading.alive}
        lives = {name: Life(each.service, each.reading.uuid) for name, each in alive.items()}
        hosts = {name: _host(each) for name, each in alive.items()}
        self._looks.append(look(slot(before, snapshot, COST_MIN), lives, hosts))
        was, judged = self._judged, judge(tuple(self._looks), self._named, self._thresholds())
        self._judged = replace(judged, waiting=self._with_sharing(judged.waiting, hosts))
        self._named = {each.about: each.since for each in judged.findings}
        self._named |= {each.about: each.since for each in judged.waiting}
        self._report_changes(was, self._judged, lives)

    def _with_sharing(self, waiting: Sequence[WaitingWorker], hosts: Mapping[str, Host]) -> tuple[WaitingWorker, ...]:
        """If a waiting worker may use only one processor, add this processor and another process that runs there."""
        cpus = {each.worker: cpu for each in waiting if (cpu := hosts[each.worker].cpu) is not None}
        others = self._sharing({pid: cpu for worker, cpu in cpus.items() if (pid := hosts[worker].pid)})
        sharing = {worker: Sharing(cpu, others.get(hosts[worker].pid or 0)) for worker, cpu in cpus.items()}
        return tuple(replace(each, sharing=sharing.get(each.worker)) for each in waiting)

    def _report_changes(self, was: StragglerVerdict, now: StragglerVerdict, lives: Container[str]) -> None:
        before, after = of_workers(was.findings), of_workers(now.findings)
        for finding, text in now.headlines():
            service, worker, _ = finding.about
            if (service, worker) not in before:
                self._report("straggler", text, service, worker, _SLOW)
        for (service, worker), found in before.items():
            if (service, worker) not in after and worker in lives:  # a worker that ended has not recovered
                for_ns = now.ended.now_ns - min(finding.since for finding in found).now_ns
                text = f"{worker} is no longer slow in {found[0].about.brick}; it was slow for {duration(for_ns)}"
                self._report("straggler_gone", text, service, worker, _SLOW)

        waited, waits = {each.about: each for each in was.waiting}, {each.about for each in now.waiting}
        for each in now.waiting:
            if each.about not in waited:
                self._report("waits_for_cpu", each.text, each.service, each.worker, _WAITS)
        for about, each in waited.items():
            if about not in waits and each.worker in lives:
                for_ns = now.ended.now_ns - each.since.now_ns
                text = f"{each.worker} no longer waits for a processor; it waited for {duration(for_ns)}"
                self._report("waits_for_cpu_gone", text, each.service, each.worker, _WAITS)

    def _report(self, kind: str, text: str, service: str, worker: str, subject: str) -> None:
        command, problem = f"brickd stragglers {as_argument(service)}", problem_id("straggler", service, subject)
        self._log_event(kind, text, service=service, worker=worker, command=command, problem=problem)


def _host(worker: Worker) -> Host:
    threads = sum(lane["begun"] > 0 for _, lane, _ in worker.reading.lanes)
    usage = worker.usage or Usage(None, 0)
    return Host(max(1, threads), usage.ran, usage.waited, worker.reading.pid, usage.cpu, usage.throttled)
