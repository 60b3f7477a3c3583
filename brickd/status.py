"""The status of this machine as one document: what `brickd status --json` prints and every other form renders.

Owns: the schema, and what counts as a problem. Must not know: terminals, files. Invariants: the ledger of the document
is the sum of its workers' ledgers; every problem names the next command; nothing is left out that a count could show.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from brickd.errors import SegmentRefused
from brickd.ledger import Ledger
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
    problems = _losses(worker)
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
        "problem": problems[0] if problems else None,
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


def _losses(worker: Worker) -> list[str]:
    """What this worker could not record, the worst first."""
    reading, ledger = worker.reading, worker.ledger
    header, process = reading.header, reading.process
    losses = []
    if ledger.spans["no_lane"]:
        losses.append(
            f"{ledger.spans['no_lane']:,} spans not recorded: more threads than its {header['lanes']} lanes,"
            " or no memory for one; raise BRICKD_LANES"
        )
    if process["blocks_refused"]:
        losses.append(f"memory refused {process['blocks_refused']:,} times: /dev/shm or its memory cgroup is full")
    if ledger.rejected["room"]:
        losses.append(f"{ledger.rejected['room']:,} spans not recorded: too many open at once in one thread")
    if ledger.rejected["clock"]:
        losses.append(f"{ledger.rejected['clock']:,} spans not recorded: the clock went back")
    if process["names"] >= header["names"] or process["paths"] >= header["paths"]:
        losses.append(
            f"spans folded into 'other': more than {header['names']:,} names or {header['paths']:,} paths;"
            " raise BRICKD_NAMES or BRICKD_PATHS"
        )
    elif process["names_refused"]:
        losses.append(f"{process['names_refused']:,} names were empty or found no memory: recorded as 'other'")
    if ledger.details_dropped.total():
        losses.append(f"{ledger.details_dropped.total():,} span details dropped; totals are whole")
    if ledger.spans["nested"]:
        losses.append(f"{ledger.spans['nested']:,} calls from signal handlers not recorded")
    return losses


def _inspect(name: str) -> str:
    """The command, safe to paste: the name is a worker's own text."""
    return f"brickd inspect {'-- ' if name.startswith('-') else ''}{shlex.quote(name)}"


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
        {"text": f"{worker.name}: {loss}", "command": _inspect(worker.name)}
        for worker in workers
        for loss in _losses(worker)
    ]
    return problems
