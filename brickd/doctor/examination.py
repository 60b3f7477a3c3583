"""The whole examination: all facts first, then all findings.

Owns: which checks there are, and their order. Must not know: what any of them looks at, screens. Invariants: `judge`
depends on its facts alone; a part of the machine that cannot be looked at costs its own facts and no others.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from brickd import _reader, cgroups
from brickd.doctor import (
    clock,
    container,
    daemon,
    installed,
    keys,
    logind,
    losses,
    memory_group,
    namespaces,
    numerics,
    processes,
    recordings,
    removed,
    segments,
    shared_memory,
)
from brickd.doctor.finding import STATES, Finding
from brickd.files import prefix
from brickd.runtime import runtime
from brickd.workers import survey


@dataclass(frozen=True, slots=True)
class Facts:
    """All that was seen of this machine."""

    prefix: str
    versions: installed.Versions
    container: container.Container
    shm: shared_memory.SharedMemory
    logind: logind.Logind
    clock: clock.Clock
    memory: cgroups.Limit | None
    segments: segments.Segments
    processes: processes.Processes
    daemon: daemon.Daemon
    recordings: tuple[recordings.Left, ...] = ()
    window: numerics.Window | None = None
    key_file: str = ""
    removed: removed.Records = removed.NO_RECORDS


def examine() -> list[Finding]:
    """Look at this machine and say what is found."""
    return judge(observe())


def observe() -> Facts:
    """Look at everything once."""
    try:
        found = segments.observe(survey())
    except OSError:  # the folder cannot be listed: that is a finding of its own
        found = segments.Segments()
    return Facts(
        prefix=prefix(),
        versions=installed.observe(),
        container=container.observe(os.environ),
        shm=shared_memory.observe(_reader.DIRECTORY),
        logind=logind.observe({os.geteuid(), *(worker.uid for worker in found.workers)}),
        clock=clock.observe(os.uname().machine),
        memory=cgroups.observe(),
        segments=found,
        processes=processes.observe(_reader.DIRECTORY),
        daemon=daemon.observe(runtime(), os.geteuid()),
        recordings=recordings.observe(),
        window=numerics.observe(),
        key_file=keys.observe(runtime().state),
        removed=removed.observe(prefix()),
    )


def judge(facts: Facts) -> list[Finding]:
    """Every check's answer: what is broken first, then advice, then what is fine; each in the order of the checks."""
    workers, around = facts.segments, facts.processes
    demands = [shared_memory.Demand(worker.taken_bytes, worker.most_bytes) for worker in workers.live]
    found = [
        installed.judge(facts.versions),
        shared_memory.judge_place(facts.shm),
        *shared_memory.judge_access(facts.shm, facts.container),
        *shared_memory.judge_room(facts.shm, demands, facts.container),
        memory_group.judge(facts.memory, facts.container),
        logind.judge(facts.logind),
        namespaces.judge_search(around),
        namespaces.judge_mounts(around, workers, facts.container),
        *namespaces.judge_prefix(around, workers, facts.prefix),
        segments.judge_foreign(workers, facts.container),
        segments.judge_shared(workers),
        *segments.judge_refused(workers),
        segments.judge_dead(workers),
        removed.judge(facts.removed),
        segments.judge_unread(workers),
        segments.judge_thinned(workers),
        namespaces.judge_removed(around),
        namespaces.judge_locks(around, workers),
        *namespaces.judge_silence(around, facts.container),
        *losses.judge(workers, facts.shm, facts.container),
        *keys.judge(workers, facts.key_file),
        *daemon.judge(facts.daemon),
        recordings.judge(facts.recordings),
        numerics.judge(facts.window),
        clock.judge_source(facts.clock),
        clock.judge_choice(facts.clock, {worker.name: worker.reads_counter for worker in workers.live}),
        namespaces.judge_time(around),
        namespaces.judge_pids(workers),
    ]
    return sorted(found, key=lambda finding: STATES.index(finding.state))
