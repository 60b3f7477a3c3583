"""The status of this machine as documents: of `brickd status`, and the part of it that `brickd workers` prints.

Owns: the schema, a worker's entry in it, and what counts as a problem. Must not know: terminals, files. Invariants: the
ledger of the document is the sum of its workers' ledgers; every problem names the next command; nothing is left out
that a count could show.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from brickd import opened
from brickd.errors import SegmentRefused, SegmentUnopened
from brickd.ledger import Ledger
from brickd.losses import losses
from brickd.naming import as_argument
from brickd.segment import Reading
from brickd.totals import Brick, categories
from brickd.workers import Survey, Worker

Problem = dict[str, str]


def document(survey: Survey, workers: Sequence[Worker], bricks: Sequence[Brick], *, partial: bool) -> dict[str, Any]:
    """Build the document of `brickd status`.

    Args:
        survey: all that was found.
        workers: those that were asked for.
        bricks: the totals over them.
        partial: whether only some were asked for; refused segments then belong to nobody named.
    """
    whole = Ledger()
    for worker in workers:
        whole.add(worker.ledger)
    told = workers_document(survey, workers, partial=partial)
    return {
        "schema_version": told["schema_version"],
        "source": "shared memory",
        "daemon": None,
        "ledger": whole.document(),
        "workers": told["workers"],
        "bricks": [brick.document() for brick in bricks],
        "categories": categories(bricks),
        "problems": told["problems"],
    }


def workers_document(survey: Survey, workers: Sequence[Worker], *, partial: bool) -> dict[str, Any]:
    """Build the document of `brickd workers`, from the same as `document`."""
    refused = [] if partial else survey.refused
    return {
        "schema_version": 1,
        "workers": [*map(_worker, workers), *map(_quarantined, refused)],
        "problems": _problems(workers, refused),
    }


def _open(reading: Reading) -> list[dict[str, Any]]:
    """What a live worker's lanes have open, the longest first: the youngest span of each lane."""
    found = [
        {"brick": span.brick, "layer": span.layer, "since_ns": span.since_ns, "lane": number, "thread": lane["thread"]}
        for number, lane, _ in reading.lanes
        if (span := opened.youngest(reading, lane)) is not None
    ]
    return sorted(found, key=lambda entry: (-entry["since_ns"], entry["lane"]))


def _age_ns(reading: Reading) -> int | None:
    """Since the segment was made, by the worker's own clock; None where that says nothing."""
    ticks = reading.now_ticks - reading.header["anchor_ticks"]
    return round(ticks * reading.tick_ns) if reading.alive and ticks >= 0 else None


def _worker(worker: Worker) -> dict[str, Any]:
    reading, header, process = worker.reading, worker.reading.header, worker.reading.process
    problems = losses(reading, worker.ledger)
    return {
        "name": worker.name,
        "service": worker.service,
        "index": header["index"] if header["index"] >= 0 else None,
        "coordinates": reading.coordinates or None,
        "uuid": reading.uuid,
        "segment": reading.file,
        "pid": reading.pid or header["pid"],
        "state": "live" if reading.alive else "dead",
        "started": _instant(header["started_ns"]),
        "age_ns": _age_ns(reading),
        "clock": reading.clock,
        "ledger": worker.ledger.document(),
        "lost": worker.ledger.lost(),
        "threads": sum(lane["thread"] != 0 for _, lane, _ in reading.lanes) if reading.alive else 0,
        "lanes": {"used": len(reading.lanes), "room": header["lanes"]},
        "paths": {"used": min(process["paths"], header["paths"]), "room": header["paths"]},
        "names": {"used": min(process["names"], header["names"]), "room": header["names"]},
        "memory_bytes": reading.memory_bytes,
        "cpu_percent": None,
        "rss_bytes": None,
        "open": _open(reading) if reading.alive else [],
        "pending": 0,
        "problem": str(problems[0]) if problems else None,
    }


def _quarantined(refused: SegmentRefused) -> dict[str, Any]:
    return {
        "name": refused.path,
        "service": None,
        "index": None,
        "coordinates": None,
        "uuid": None,
        "segment": refused.path,
        "pid": None,
        "state": "quarantined",
        "started": None,
        "age_ns": None,
        "clock": None,
        "ledger": Ledger().document(),
        "lost": 0,
        "threads": 0,
        "lanes": None,
        "paths": None,
        "names": None,
        "memory_bytes": None,
        "cpu_percent": None,
        "rss_bytes": None,
        "open": [],
        "pending": 0,
        "problem": refused.reason,
    }


def _instant(ns: int) -> str:
    """RFC 3339, to the millisecond; what no calendar holds is shown as its beginning."""
    try:
        moment = datetime.fromtimestamp(ns / 1e9, UTC)
    except (OverflowError, ValueError, OSError):
        moment = datetime.fromtimestamp(0, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _remedy(error: SegmentRefused) -> str:
    """What cannot be opened `prune` leaves alone."""
    return "brickd doctor" if isinstance(error, SegmentUnopened) else "brickd prune --refused"


def _problems(workers: Sequence[Worker], refused: Sequence[SegmentRefused]) -> list[Problem]:
    problems = [
        {"text": f"{error.path} is quarantined: {error.reason}", "command": _remedy(error)} for error in refused
    ]
    dead = [worker.name for worker in workers if not worker.reading.alive]
    if dead:
        who = dead[0] if len(dead) == 1 else f"{dead[0]} and {len(dead) - 1} more"
        problems.append({"text": f"{who} died; what was recorded is kept", "command": "brickd prune"})
    problems += [
        {"text": f"{worker.name}: {loss}", "command": f"brickd inspect {as_argument(worker.name)}"}
        for worker in workers
        for loss in losses(worker.reading, worker.ledger)
    ]
    return problems
