"""The series of workers, ledgers, problems, evidence and the daemon.

Owns: which figure of a document or ledger becomes which series. Must not know: spans, how figures are computed.
Invariant: Every figure equals the one that the views show for the same survey.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from brickd.analysis.evidence_verdicts import Proof
from brickd.datasources.world import DaemonStatus
from brickd.metrics.exposition import Exposition, label
from brickd.metrics.families import (
    COMPARED,
    DAEMON,
    EVIDENCE,
    LEDGER,
    LOOKED_AT,
    LOOP_AGE,
    LOST,
    PROBLEM,
    QUARANTINED,
    SAVE_FAILING,
    STARTED,
    WORKER_LOST,
    WORKER_STARTED,
    WORKER_UP,
    WORKERS,
)
from brickd.model.workers import Survey, Worker, state_of
from brickd.shm.ledger import Ledger
from brickd.shm.removed_workers import RemovedWorker
from brickd.views.common import Document
from brickd.views.problems import Listed
from brickd.views.workers import whole_ledger

STATES = ("live", "ended", "died")
_WORST: tuple[Proof, ...] = ("diverged", "unproven", "equal")


def write_workers(workers: Mapping[str, Sequence[Worker]], shown: Mapping[str, str], into: Exposition) -> None:
    """Add the series of workers.

    `workers` is keyed by the label of the service; `shown` maps uuids to labels of workers.
    """
    for service, of in workers.items():
        states = Counter[str]()
        for worker in of:
            states[state_of(worker.reading)] += worker.together
            name = shown.get(worker.reading.uuid) if worker.together == 1 else None
            if name is not None:
                into.add(WORKER_UP, int(worker.reading.alive), service, name)
                into.add(WORKER_STARTED, worker.reading.header["started_ns"] / 1e9, service, name)
                for stream, lost in worker.ledger.lost_by_kind().items():
                    into.add(WORKER_LOST, lost, service, name, stream)
        for state in STATES:
            into.add(WORKERS, states[state], service, state)


def write_ledgers(workers: Mapping[str, Sequence[Worker]], removed: Sequence[RemovedWorker], into: Exposition) -> None:
    """Add the ledger of each service. It includes the workers of the service that were removed."""
    services = dict.fromkeys((*workers, *(label(each.service) for each in removed)))
    for service in services:
        ledger = whole_ledger(workers.get(service, ()), [each for each in removed if label(each.service) == service])
        for stream, lost in ledger.lost_by_kind().items():
            into.add(LOST, lost, service, stream)
        for stream, terms in _terms(ledger).items():
            for term, count in terms.items():
                into.add(LEDGER, count, service, stream, term)


def _terms(ledger: Ledger) -> dict[str, dict[str, int]]:
    document = ledger.document()
    return {
        stream: {term: sum(count.values()) if isinstance(count, dict) else count for term, count in terms.items()}
        for stream, terms in document.items()
        if stream != "lost"
    }


def write_problems(listed: Listed, shown: Mapping[str, str], into: Exposition) -> None:
    """Add the number of problems for each service, worker and kind; `shown` maps names to labels of workers.

    If none of the workers of a problem has its own series, the problem is counted once, with an empty worker label.
    """
    counts = Counter[tuple[str, str, str, str]]()
    for state, problems in (("active", listed.problems), ("silenced", listed.silenced)):
        for problem in problems:
            service = "" if problem["service"] is None else label(problem["service"])
            for worker in {shown[name] for name in problem["workers"] if name in shown} or {""}:
                counts[service, worker, problem["kind"], state] += 1
    for labels, count in sorted(counts.items()):
        into.add(PROBLEM, count, *labels)


def write_evidence(verdicts: Sequence[Document], into: Exposition) -> None:
    """Add the verdict that follows from each class of evidence. Services with the same label share the worst one."""
    shared = defaultdict[tuple[str, str], list[Document]](list)
    for each in verdicts:
        shared[label(each["service"] or ""), each["evidence"]].append(each)
    for about, found in shared.items():
        into.add(EVIDENCE, 1, *about, min((each["verdict"] for each in found), key=_WORST.index))
        into.add(LOOKED_AT, sum(each["looked_at"] for each in found), *about)
        into.add(COMPARED, sum(each["compared"] for each in found), *about)


def write_daemon(daemon: DaemonStatus, found: Survey, into: Exposition) -> None:
    """Add the state of the daemon."""
    into.add(DAEMON, 1, label(daemon.version or ""))
    into.add(STARTED, daemon.started_ns / 1e9)
    into.add(LOOP_AGE, daemon.loop_still_ns / 1e9)
    into.add(SAVE_FAILING, int(daemon.checkpoint_problem is not None))
    into.add(QUARANTINED, len(found.refused))
