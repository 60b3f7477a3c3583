"""What the workers' processes take of the machine.

Owns: which process is a worker's, what is read of it, over which time. Must not know: what workers record, who asks.
Invariants: a process that is no worker's any more is not shown; what cannot be read is not known, and no number stands
for it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import psutil

from brickd.model.workers import Survey, Usage, Worker

_STOPPED = (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)


class _Look(NamedTuple):
    process: psutil.Process
    now_ns: int
    cpu_ns: int


class Usages:
    """The processes of all workers; one thread looks at them, any thread may ask."""

    def __init__(self) -> None:
        self._looks: dict[str, _Look] = {}  # by uuid
        self._found: dict[str, Usage] = {}

    def look(self, survey: Survey, now_ns: int) -> None:
        """Look at the live ones."""
        looks: dict[str, _Look] = {}
        found: dict[str, Usage] = {}
        for worker in survey.workers:
            uuid, pid = worker.reading.uuid, worker.reading.pid
            if not pid:  # gone, or in a pid namespace that we do not see into
                continue
            before = self._looks.get(uuid)
            try:
                # One that was found before knows when its process began: it is not mistaken for another of its number.
                known = before is not None and before.process.pid == pid and before.process.is_running()
                process = before.process if before is not None and known else psutil.Process(pid)
                with process.oneshot():
                    times, rss = process.cpu_times(), process.memory_info().rss
                    stopped = process.status() in _STOPPED
            except psutil.Error:
                continue
            looks[uuid] = _Look(process, now_ns, round((times.user + times.system) * 1e9))
            percent = _percent(before, looks[uuid]) if before is not None and known else None
            found[uuid] = Usage(percent, rss, stopped)
        self._looks, self._found = looks, found

    def laid_over(self, survey: Survey) -> Survey:
        """The survey with what the last look found."""
        found = self._found

        def used(worker: Worker) -> Worker:
            usage = found.get(worker.reading.uuid) if worker.reading.alive else None
            return worker if usage is None else replace(worker, usage=usage)

        return replace(survey, workers=[used(worker) for worker in survey.workers])


def _percent(before: _Look, now: _Look) -> float | None:
    """Of one processor, between two looks."""
    elapsed_ns = now.now_ns - before.now_ns
    return round(100 * (now.cpu_ns - before.cpu_ns) / elapsed_ns, 2) if elapsed_ns > 0 else None
