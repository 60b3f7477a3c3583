"""The resource use of the workers' processes.

Owns: which process belongs to a worker, which values are read, the time over which usage is measured. Must not know:
what workers record, screens. Invariants: A process that no longer belongs to a worker is not shown. A value that cannot
be read is None, never a number.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import psutil

from brickd.base.cgroups import throttled_ns
from brickd.base.cpu_sharing import only_cpu
from brickd.base.files import read
from brickd.model.workers import Survey, Usage, Worker

_STOPPED = (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)


_PROCESSES = Path("/proc")
_THREADS_MAX = 1_024  # the waiting time is unknown for a process with more threads


class Scheduled(NamedTuple):
    """How long a thread ran, and how long it waited for a processor."""

    ran_ns: int
    waited_ns: int


class _Look(NamedTuple):
    process: psutil.Process
    now_ns: int
    cpu_ns: int
    threads: Mapping[int, Scheduled] | None
    throttled_ns: int | None


class Usages:
    """The usage of all workers' processes. One thread measures it; any thread may query it.

    `root` is the root of the file system that contains the control groups.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._looks: dict[str, _Look] = {}  # the last measurement of each worker, by uuid
        self._found: dict[str, Usage] = {}

    def look(self, survey: Survey, now_ns: int) -> None:
        """Measure the processes that are alive."""
        looks: dict[str, _Look] = {}
        found: dict[str, Usage] = {}
        for worker in survey.workers:
            uuid, pid = worker.reading.uuid, worker.reading.pid
            if not pid:  # the process has ended, or its pid namespace is not visible here
                continue
            before = self._looks.get(uuid)
            try:
                # psutil also compares the start time, so another process with the same pid is not taken for this one.
                known = before is not None and before.process.pid == pid and before.process.is_running()
                process = before.process if before is not None and known else psutil.Process(pid)
                with process.oneshot():
                    times, rss = process.cpu_times(), process.memory_info().rss
                    stopped = process.status() in _STOPPED
            except psutil.Error:
                continue
            cpu_ns = round((times.user + times.system) * 1e9)
            here = looks[uuid] = _Look(process, now_ns, cpu_ns, scheduled(pid), throttled_ns(pid, self._root))
            last = before if known else None
            percent = None if last is None else _percent(last, here)
            parts = _parts(last, here)
            found[uuid] = Usage(percent, rss, stopped, *parts, only_cpu(pid), _throttled(last, here))
        self._looks, self._found = looks, found

    def laid_over(self, survey: Survey) -> Survey:
        """Return the survey, with the usage from the last measurement."""
        found = self._found

        def used(worker: Worker) -> Worker:
            usage = found.get(worker.reading.uuid) if worker.reading.alive else None
            return worker if usage is None else worker._replace(usage=usage)

        return survey._replace(workers=[used(worker) for worker in survey.workers])


def _percent(before: _Look, now: _Look) -> float | None:
    elapsed_ns = now.now_ns - before.now_ns
    return round(100 * (now.cpu_ns - before.cpu_ns) / elapsed_ns, 2) if elapsed_ns > 0 else None


def scheduled(pid: int, root: Path = _PROCESSES) -> dict[int, Scheduled] | None:
    """Return the kernel's accounting of each thread of a process; None if it is not available."""
    tasks = root / str(pid) / "task"
    try:
        threads = os.listdir(tasks)
    except OSError:
        return None
    if len(threads) > _THREADS_MAX:
        return None
    found = {}
    for thread in threads:
        fields = (read(tasks / thread / "schedstat") or "").split()
        if len(fields) == 3 and all(each.isdecimal() for each in fields):
            found[int(thread)] = Scheduled(int(fields[0]), int(fields[1]))
        elif (tasks / thread).exists():
            return None
    return found or None


def _parts(before: _Look | None, now: _Look) -> tuple[float | None, float | None]:
    """Return how long the threads ran and how long they waited, each divided by the time between the measurements."""
    elapsed_ns = 0 if before is None else now.now_ns - before.now_ns
    if before is None or before.threads is None or now.threads is None or elapsed_ns <= 0:
        return None, None
    ran = waited = 0
    for thread, here in now.threads.items():
        then = before.threads.get(thread, Scheduled(0, 0))
        ran += max(0, here.ran_ns - then.ran_ns)
        waited += max(0, here.waited_ns - then.waited_ns)
    return ran / elapsed_ns, waited / elapsed_ns


def _throttled(before: _Look | None, now: _Look) -> float | None:
    """Return how long the control group was throttled, divided by the time between the two measurements.

    The throttled times of all processors are added up, but the result is at most 1.
    """
    if before is None or before.throttled_ns is None or now.throttled_ns is None or now.now_ns <= before.now_ns:
        return None
    return min(1.0, max(0, now.throttled_ns - before.throttled_ns) / (now.now_ns - before.now_ns))
