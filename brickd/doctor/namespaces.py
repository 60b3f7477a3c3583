"""Finds workers that brickd cannot see.

They have another mount, prefix or namespace, or their file was removed.

Owns: why a process that loads brick_agent is not a visible worker. Must not know: /proc, the content of segments.
Invariant: a process is judged by the segment that it owns; a process that only maps its parent's segment is fine.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from brickd.base.units import listed
from brickd.doctor.check import CheckResult, fine, mib
from brickd.doctor.container import Container, enlarged, shared
from brickd.doctor.processes import Mapped, Place, Process, Processes
from brickd.doctor.segments import Segments
from brickd.doctor.shared_memory import LEAST_BYTES, USUAL_BYTES
from brickd.shm.segment_files import PREFIX_BYTES_MAX, is_prefix

_RANDOM_DIGITS = 32  # the random digits at the end of a segment's name


def _who(processes: Sequence[Process]) -> str:
    return listed([f"pid {process.pid} ({process.command})" for process in processes])


def _pids(processes: Sequence[Process]) -> tuple[str, ...]:
    return tuple(str(process.pid) for process in processes)


def _own(process: Process, place: Place) -> list[Mapped]:
    return [segment for segment in process.segments if segment.owned and segment.place == place]


def judge_search(processes: Processes) -> CheckResult:
    """Report how many processes of this user could be inspected."""
    seen = f"{len(processes.found):,} of this user's {processes.seen:,} processes use brickd"
    if processes.left:
        seen += f"; {processes.left:,} more were skipped, because there are too many"
    if processes.closed:
        seen += f"; {processes.closed:,} could not be inspected"
    return fine("processes", seen, "every process inspected", _pids(processes.found))


def judge_mounts(processes: Processes, segments: Segments, container: Container) -> CheckResult:
    """Find processes that write to another /dev/shm."""
    away = [process for process in processes.found if _own(process, "elsewhere")]
    wanted = "one /dev/shm for brickd and its workers"
    if not away and container.kind is not None and segments.empty and not processes.found:
        seen = f"no segment and no worker here, in {container}"
        why = "a container has its own /dev/shm and processes: a server in another container is not visible here"
        return CheckResult("shm-namespace", "advice", seen, wanted, shared(container), why)
    if not away:
        return fine("shm-namespace", "no process writes to another /dev/shm", wanted)
    seen = f"{_who(away)}: writes to another /dev/shm"
    why = f"brickd sees only its own /dev/shm; brickd runs in {container}"
    return CheckResult("shm-namespace", segments.hidden, seen, wanted, shared(container), why, _pids(away))


def judge_prefix(processes: Processes, segments: Segments, prefix: str) -> list[CheckResult]:
    """Find processes whose segments have another prefix, with one finding for each prefix."""
    others: dict[str, list[Process]] = {}
    for process in processes.found:
        for segment in _own(process, "here"):
            if not segment.file.startswith(prefix):
                others.setdefault(segment.file[:-_RANDOM_DIGITS], []).append(process)
    wanted = f"segment names that begin with {prefix}"
    if not others:
        return [fine("prefix", "no worker uses another prefix", wanted)]
    return [
        CheckResult(
            name="prefix",
            state=segments.hidden,
            seen=f"{_who(many)}: {theirs}",
            wanted=wanted,
            fix=f"BRICKD_SHM_PREFIX={shlex.quote(theirs)} brickd status",
            why="brickd looks only for its own prefix",
            about=_pids(many),
        )
        for theirs, many in sorted(others.items())
    ]


def judge_removed(processes: Processes) -> CheckResult:
    """Find processes whose segment was removed."""
    lost = [process for process in processes.found if _own(process, "removed") and not _own(process, "here")]
    wanted = "segments removed only by brickd"
    if not lost:
        return fine("removed", "no worker's segment was removed", wanted)
    why = "do not use rm /dev/shm/*; logind's RemoveIPC may also remove segments; a worker opens a new one within 10 s"
    seen = f"{_who(lost)}: its segment was removed"
    return CheckResult("removed", "advice", seen, wanted, "brickd prune", why, _pids(lost))


def judge_locks(processes: Processes, segments: Segments) -> CheckResult:
    """Find processes that lost the lock on their own segment."""
    by_file = {worker.file: worker for worker in segments.workers}
    unlocked = [
        process
        for process in processes.found
        for segment in process.segments
        if segment.place == "here" and not segment.owned and segment.file in by_file
        if by_file[segment.file].own_pid == process.pid and not by_file[segment.file].pid
    ]
    wanted = "each worker holds the lock on its segment"
    if not unlocked:
        return fine("lock", "no worker has lost its lock", wanted)
    why = "call it after the code that closes all descriptors; without the lock, a quiet worker counts as died"
    seen = f"{_who(unlocked)}: has no lock"
    return CheckResult("lock", "advice", seen, wanted, "brick.init()", why, _pids(unlocked))


def judge_silence(processes: Processes, container: Container) -> list[CheckResult]:
    """Find processes that load brick_agent but have no segment, with one finding for each reason."""
    alike: dict[tuple[str, str], list[Process]] = {}
    for process in processes.found:
        if not process.segments:
            alike.setdefault(_reason(process, container), []).append(process)
    wanted = "a segment in each process that loads brick_agent"
    if not alike:
        return [fine("silent", "every process that loads brick_agent has a segment", wanted)]
    return [
        CheckResult("silent", "advice", f"{_who(many)}: no segment", wanted, fix, why, _pids(many))
        for (why, fix), many in alike.items()
    ]


def _reason(process: Process, container: Container) -> tuple[str, str]:
    settings = process.settings or {}
    if settings.get("BRICKD") == "0":
        return "BRICKD=0 turns recording off", "unset BRICKD"
    if not is_prefix(settings.get("BRICKD_SHM_PREFIX", "")):
        return (
            f"its BRICKD_SHM_PREFIX is longer than {PREFIX_BYTES_MAX} bytes or contains a slash",
            "unset BRICKD_SHM_PREFIX",
        )
    if settings.get("BRICKD_CLOCK", "") not in ("", "auto", "tsc", "monotonic"):
        return "its BRICKD_CLOCK is not auto, tsc or monotonic", "unset BRICKD_CLOCK"
    if process.free_bytes is not None and process.free_bytes < LEAST_BYTES:
        return f"its /dev/shm is full: {mib(process.free_bytes)} free", enlarged(container, 2 * USUAL_BYTES)
    return "it has recorded nothing yet, or its stderr says why it cannot", "brick.init()"


def judge_time(processes: Processes) -> CheckResult:
    """Report workers in another time namespace. This is not a problem, because the kernel reports the offset."""
    apart = [process for process in processes.found if process.our_time is False and _own(process, "here")]
    seen = f"{_who(apart)}: in another time namespace" if apart else "all workers are in brickd's time namespace"
    wanted = "any time namespace, because the kernel reports the offset of the clocks"
    return fine("time-namespace", seen, wanted, _pids(apart))


def judge_pids(segments: Segments) -> CheckResult:
    """Report workers in another pid namespace. This is not a problem, because locks show which workers are alive."""
    apart = [worker.name for worker in segments.live if worker.pid != worker.own_pid]
    seen = f"{listed(apart)}: in another pid namespace" if apart else "all workers are in brickd's pid namespace"
    return fine("pid-namespace", seen, "any pid namespace, because locks show which workers are alive", apart)
