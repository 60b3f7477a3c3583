"""Runs all checks: collects all facts first, then all findings.

Owns: the list of checks, and their order. Must not know: the facts of individual checks, screens. Invariants: The
result of `judge` depends only on the facts. If a part of the machine cannot be observed, only the facts about that part
are missing.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from brickd.base import cgroups
from brickd.base.paths import runtime
from brickd.doctor import (
    checksum_keys,
    clock,
    container,
    daemon,
    flight_recorder,
    logind,
    lost_records,
    namespaces,
    numerics,
    processes,
    removed_workers,
    segments,
    shared_memory,
    unfetched_recordings,
)
from brickd.doctor import versions as installed
from brickd.doctor.check import STATES, CheckResult
from brickd.model.worker_survey import survey
from brickd.shm import _reader
from brickd.shm.segment_files import prefix


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """All observed facts about this machine."""

    prefix: str
    versions: installed.Versions
    container: container.Container
    shm: shared_memory.ShmFacts
    logind: logind.Logind
    clock: clock.KernelClock
    memory: cgroups.Limit | None
    segments: segments.Segments
    processes: processes.Processes
    daemon: daemon.DaemonFacts
    flight: flight_recorder.FlightFacts
    recordings: tuple[unfetched_recordings.UnfetchedRecording, ...] = ()
    window: numerics.HeldFingerprints | None = None
    key_file: str = ""
    removed: removed_workers.RecordsFile = removed_workers.NO_RECORDS


def examine() -> list[CheckResult]:
    """Check this machine; return the findings."""
    return judge(observe())


def observe(proc: Path = Path("/proc")) -> MachineFacts:
    """Observe everything once; `proc` is the folder of the processes."""
    try:
        found = segments.observe(survey())
    except OSError:  # the folder cannot be listed; another check reports this
        found = segments.Segments()
    return MachineFacts(
        prefix=prefix(),
        versions=installed.observe(),
        container=container.observe(os.environ),
        shm=shared_memory.observe(_reader.DIRECTORY),
        logind=logind.observe({os.geteuid(), *(worker.uid for worker in found.workers)}),
        clock=clock.observe(os.uname().machine),
        memory=cgroups.observe(),
        segments=found,
        processes=processes.observe(_reader.DIRECTORY, proc),
        daemon=daemon.observe(runtime(), os.geteuid()),
        flight=flight_recorder.observe(),
        recordings=unfetched_recordings.observe(),
        window=numerics.observe(),
        key_file=checksum_keys.observe(runtime().state),
        removed=removed_workers.observe(prefix()),
    )


def judge(facts: MachineFacts) -> list[CheckResult]:
    """Return all findings: broken findings, then advice, then fine ones; each group in the order of the checks."""
    workers, around = facts.segments, facts.processes
    demands = [shared_memory.Demand(worker.taken_bytes, worker.most_bytes) for worker in workers.live]
    found = [
        installed.judge(facts.versions),
        shared_memory.judge_place(facts.shm),
        *shared_memory.judge_access(facts.shm, facts.container),
        *shared_memory.judge_room(facts.shm, demands, facts.container),
        shared_memory.judge_group(facts.memory, facts.container),
        logind.judge(facts.logind),
        namespaces.judge_search(around),
        namespaces.judge_mounts(around, workers, facts.container),
        *namespaces.judge_prefix(around, workers, facts.prefix),
        segments.judge_foreign(workers, facts.container),
        segments.judge_shared(workers),
        *segments.judge_refused(workers),
        segments.judge_dead(workers),
        removed_workers.judge(facts.removed),
        segments.judge_unread(workers),
        segments.judge_thinned(workers),
        namespaces.judge_removed(around),
        namespaces.judge_locks(around, workers),
        *namespaces.judge_silence(around, facts.container),
        *lost_records.judge(workers, facts.shm, facts.container),
        *checksum_keys.judge(workers, facts.key_file),
        *daemon.judge(facts.daemon, facts.versions.brickd),
        unfetched_recordings.judge(facts.recordings),
        flight_recorder.judge(facts.flight),
        numerics.judge(facts.window),
        clock.judge_source(facts.clock),
        clock.judge_choice(facts.clock, {worker.name: worker.reads_counter for worker in workers.live}),
        namespaces.judge_time(around),
        namespaces.judge_pids(workers),
    ]
    return sorted(found, key=lambda finding: STATES.index(finding.state))
