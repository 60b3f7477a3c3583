"""The status of this machine as one document: what `brickd status --json` prints and every other form renders.

Owns: the schema, and what counts as a problem. Must not know: terminals, files. Invariants: the ledger of the document
is the sum of its workers' ledgers; every problem names the next command; nothing is left out that a count could show.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from brickd.errors import SegmentRefused
from brickd.ledger import Ledger
from brickd.losses import losses
from brickd.naming import as_argument
from brickd.segment import Reading
from brickd.totals import Brick, categories
from brickd.workers import Survey, Worker

Problem = dict[str, str]


def document(survey: Survey, workers: Sequence[Worker], bricks: Sequence[Brick], *, partial: bool) -> dict[str, Any]:
    """Build the document.

    Args:
        survey: all that was found.
        workers: those that were asked for.
        bricks: the totals over them.
        partial: whether only some were asked for; refused segments then belong to nobody named.
    """
    whole = Ledger()
    for worker in workers:
        whole.add(worker.ledger)
    refused = [] if partial else survey.refused
    return {
        "schema_version": 1,
        "source": "shared memory",
        "daemon": None,
        "ledger": whole.document(),
        "workers": [*map(_worker, workers), *map(_quarantined, refused)],
        "bricks": [brick.document() for brick in bricks],
        "categories": categories(bricks),
        "problems": _problems(workers, refused),
    }


def open_bricks(reading: Reading) -> list[dict[str, Any]]:
    """What a live worker's lanes have open, the longest first: the youngest span of each lane."""
    found = []
    for _, lane, _ in reading.lanes:
        word = lane["current"]
        number = word & 0xFFFF
        path = reading.paths[number] if number < len(reading.paths) else None
        if word and path is not None:
            # The word holds 48 bits of the start, without the lowest eight.
            ticks = ((reading.now_ticks >> 8) - (word >> 16)) % 2**48 << 8
            since = ticks * reading.tick_ns if ticks < 2**55 else 0.0
            found.append({"brick": reading.name(path.name), "since_ns": round(since)})
    return sorted(found, key=lambda entry: -int(entry["since_ns"]))


def _worker(worker: Worker) -> dict[str, Any]:
    reading = worker.reading
    problems = losses(worker.reading, worker.ledger)
    return {
        "name": worker.name,
        "service": worker.service,
        "index": reading.header["index"] if reading.header["index"] >= 0 else None,
        "pid": reading.pid or reading.header["pid"],
        "state": "live" if reading.alive else "dead",
        "started": _instant(reading.header["started_ns"]),
        "ledger": worker.ledger.document(),
        "cpu_percent": None,
        "rss_bytes": None,
        "open": open_bricks(reading) if reading.alive else [],
        "pending": 0,
        "problem": str(problems[0]) if problems else None,
    }


def _quarantined(refused: SegmentRefused) -> dict[str, Any]:
    return {
        "name": refused.path,
        "service": None,
        "index": None,
        "pid": None,
        "state": "quarantined",
        "started": None,
        "ledger": Ledger().document(),
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


def _problems(workers: Sequence[Worker], refused: Sequence[SegmentRefused]) -> list[Problem]:
    problems = [
        {"text": f"{error.path} is quarantined: {error.reason}", "command": "brickd prune --refused"}
        for error in refused
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
