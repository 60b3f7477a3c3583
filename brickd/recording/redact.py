"""The redaction of snapshots, events and weights for a recording.

Owns: which data is removed from them. Must not know: records (the spool redacts these), files, when data is written.
Invariants: An event keeps its text only if the text mentions no tensors, steps or positions. Weights are redacted in
the same way as records of weights, with the same new keys.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from brickd.analysis.weights.store import Weights
from brickd.analysis.weights.tensors import Tensors
from brickd.analysis.weights.worker_tensors import Holds
from brickd.model.event_log import Event
from brickd.model.survey_snapshot import Snapshot
from brickd.shm import _reader

# The kinds of events whose texts mention only workers, services, bricks and files, and how many of them there are.
_TOLD = frozenset(
    {
        "blind", "break", "checkpoint_failed", "checkpoint_written", "daemon_started", "day_failed", "flight_missed",
        "flight_recorded", "quarantined",
        "rationed", "recording_began", "recording_ended", "recording_failed", "recording_removed", "recording_resumed",
        "restored",
        "set", "starved", "straggler", "straggler_gone", "worker_died", "worker_ended", "worker_found", "worker_missed",
        "worker_moved", "worker_returned",
    }
)  # fmt: skip
_LEFT_OUT = "omitted: the recording is redacted"


def keeps_text(kind: str) -> bool:
    """Whether the text of an event of this kind mentions no tensors, steps or positions."""
    return kind in _TOLD


def event(of: Event) -> Event:
    """Return the event, redacted."""
    return of if keeps_text(of.kind) else of._replace(text=_LEFT_OUT, command=None, problem=None)


def snapshot(of: Snapshot, key_name: Callable[[int], int]) -> Snapshot:
    """Return a copy of the snapshot.

    The names of checksum keys are replaced, just as they are replaced in the records.
    """
    workers = []
    for worker in of.survey.workers:
        process = worker.reading.process
        reading = replace(worker.reading, process={**process, "key": key_name(process["key"])})
        workers.append(worker._replace(reading=reading))
    return of._replace(survey=of.survey._replace(workers=workers))


def weights(of: Weights, spool: _reader.Spool) -> tuple[dict[int, bytes], dict[str, Tensors], dict[str, Holds]]:
    """Redact weights as the spool redacts records. The function changes `of`, so `of` must be a copy."""
    contents, tensors, workers = of.kept()
    held = {number for holds in workers.values() for column in (holds.now, holds.firsts) for number in column} - {0}
    left = {number: spool.tensors(content) for number, content in contents.items() if number in held}
    for holds in workers.values():
        for number, named in enumerate(holds.named):
            if named:
                holds.generations[number] = spool.step(holds.generations[number])
    return left, tensors, workers
