"""The view `workers`: every worker in full, and the problems.

Owns: a worker's entry. Must not know: terminals, files, problems. Invariants: Every count is shown. At most LISTED_MAX
refused files are listed; the total number is given.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from brickd.base.timestamps import rfc3339
from brickd.base.units import plural
from brickd.datasources.world import World
from brickd.errors import SegmentRefused
from brickd.model.workers import Survey, Worker, state_of
from brickd.query.orders import settings
from brickd.query.queries import WorkersQuery
from brickd.shm import open_spans
from brickd.shm.ledger import Ledger
from brickd.shm.losses import losses
from brickd.shm.removed_workers import OTHERS, RemovedWorker
from brickd.shm.sampling import words_of
from brickd.shm.segment_copy import Reading
from brickd.views.common import Answer, begun, chosen
from brickd.views.problems import LISTED_MAX, Seen, active

Entry = dict[str, Any]


def answer(world: World, query: WorkersQuery) -> Answer:
    """Describe each of the workers."""
    found, workers, words = chosen(world, query.names)
    partial = bool(query.names)
    seen = Seen.of(world, found, workers, query.names)
    document = {
        **begun(world),
        "ledger": whole_ledger(workers, seen.removed).document(),
        "workers": entries(found, workers, partial=partial),
        "removed": [each.document() for each in seen.removed],
        **active(seen, time.time_ns())._asdict(),
    }
    return Answer(document, words)


def whole_ledger(workers: Sequence[Worker], removed: Sequence[RemovedWorker]) -> Ledger:
    """Return the sum of the ledgers of present and removed workers."""
    whole = Ledger()
    for worker in workers:
        whole.add(worker.ledger)
    for each in removed:
        whole.add_removed(each.counts)
    return whole


def entries(survey: Survey, workers: Sequence[Worker], *, partial: bool) -> list[Entry]:
    """Return the entries of the chosen workers.

    If the query names no worker, also return the entries of refused files.
    """
    return [*map(entry, workers), *([] if partial else _refused(survey.refused))]


def _open(reading: Reading) -> list[dict[str, Any]]:
    """Return the youngest open span of each lane of a live worker, the longest open span first."""
    found = [
        {"brick": span.brick, "layer": span.layer, "since_ns": span.since_ns, "lane": number, "thread": lane["thread"]}
        for number, lane, _ in reading.lanes
        if lane["current"] and (span := open_spans.youngest(reading, lane)) is not None
    ]
    return sorted(found, key=lambda entry: (-(entry["since_ns"] or 0), entry["lane"]))


def _age_ns(reading: Reading) -> int | None:
    """Return the age of the segment, measured by the worker's clock; None if unknown."""
    if reading.now_ticks is None or not reading.alive:
        return None
    ticks = reading.now_ticks - reading.header["anchor_ticks"]
    return round(ticks * reading.tick_ns) if ticks >= 0 else None


def _set(reading: Reading) -> Entry:
    """Return the setting that the consumer wrote.

    The setting has no patterns of sites, because a segment does not store them.
    """
    return {
        **settings(spans=reading.detailed, off=reading.off),
        "fingerprints": words_of(reading.asked_rate),
        "filtered": bool(reading.left_out),
    }


def entry(worker: Worker) -> Entry:
    """Return the entry of a worker."""
    reading, header, process = worker.reading, worker.reading.header, worker.reading.process
    lost = losses(reading, worker.ledger)
    return {
        "name": worker.name,
        "service": worker.service,
        "index": header["index"] if header["index"] >= 0 else None,
        "coordinates": reading.coordinates or None,
        "uuid": reading.uuid,
        "segment": reading.file,
        "pid": reading.pid or header["pid"],
        "state": state_of(reading),
        "together": worker.together,
        "set": _set(reading) if reading.alive else None,
        "configured": {"fingerprints": words_of(header["rate"])},
        "drained": reading.drained if reading.alive else None,
        "started": rfc3339(header["started_ns"]),
        "age_ns": _age_ns(reading),
        "clock": reading.clock,
        "ledger": worker.ledger.document(),
        "lost": worker.ledger.lost(),
        "threads": sum(n for lane, _, n in reading.alike() if lane["thread"]) if reading.alive else 0,
        "lanes": {"used": len(reading.lanes), "room": header["lanes"]},
        "paths": {"used": min(process["paths"], header["paths"]), "room": header["paths"]},
        "names": {"used": min(process["names"], header["names"]), "room": header["names"]},
        "memory_bytes": reading.memory_bytes,
        "cpu_percent": None if worker.usage is None else worker.usage.cpu_percent,
        "rss_bytes": None if worker.usage is None else worker.usage.rss_bytes,
        "open": _open(reading) if reading.alive else [],
        "pending": worker.ledger.deferred["pending"],
        "problem": str(lost[0]) if lost else None,
    }


def _refused(refused: Sequence[SegmentRefused]) -> list[Entry]:
    """Return the entries of the first LISTED_MAX files, and one entry for all others."""
    listed = [_quarantined(error.path, error.path, error.reason) for error in refused[:LISTED_MAX]]
    more = len(refused) - LISTED_MAX
    others = [_quarantined(OTHERS, None, plural(more, "more file"), together=more)] if more > 0 else []
    return listed + others


def _quarantined(name: str, file: str | None, reason: str, *, together: int = 1) -> Entry:
    return {
        **unknown_entry(name, "quarantined"),
        "segment": file,
        "together": together,
        "ledger": Ledger().document(),
        **dict.fromkeys(("lost", "threads"), 0),
        "open": [],
        "pending": 0,
        "problem": reason,
    }


def unknown_entry(name: str, state: str) -> Entry:
    """Return an entry of which everything else is unknown."""
    return {
        "name": name,
        **dict.fromkeys(("service", "index", "coordinates", "uuid", "segment", "pid")),
        "state": state,
        "together": 1,
        **dict.fromkeys(("set", "configured", "drained", "started", "age_ns", "clock", "ledger", "lost", "threads")),
        **dict.fromkeys(("lanes", "paths", "names", "memory_bytes", "cpu_percent", "rss_bytes")),
        **dict.fromkeys(("open", "pending", "problem")),
    }
