"""The view `workers`: every worker in full, and what is wrong.

Owns: a worker's entry, and what counts as a problem. Must not know: terminals, files. Invariants: every problem names
the next command; nothing is left out that a count could show; of any number of bad files an answer lists a few, and
says how many there are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from brickd import opened
from brickd.errors import SegmentOverBudget, SegmentRefused, SegmentUnopened
from brickd.instant import rfc3339
from brickd.ledger import Ledger
from brickd.losses import losses
from brickd.memory import OTHERS
from brickd.naming import as_argument
from brickd.questions.workers import WorkersQuestion
from brickd.reading import Reading
from brickd.switches import settings
from brickd.thinning import words_of
from brickd.units import duration
from brickd.views import numerics, removed, weighed
from brickd.views.answer import Answer, begun, chosen
from brickd.words import many
from brickd.workers import Survey, Worker
from brickd.world import Facts, World

if TYPE_CHECKING:
    from brickd.findings import Judged

LISTED_MAX = 64  # files that were refused

Entry = dict[str, Any]
Problem = dict[str, str]


def answer(world: World, question: WorkersQuestion) -> Answer:
    """Show each of the workers."""
    found, workers, words = chosen(world, question.names)
    partial, compared = bool(question.names), numerics.known(world)
    differing = () if compared is None else numerics.about(compared, workers, partial=partial)
    weights = weighed.findings(weighed.beside(world, found, workers), workers, partial=partial)
    gone, daemon = removed.chosen(found, question.names), world.daemon()
    document = {
        **begun(world),
        "workers": entries(found, workers, partial=partial),
        "removed": removed.entries(gone),
        "problems": [
            *weighed.problems(weights or ()),
            *numerics.problems(differing, numerics.called_now(found.workers)),
            *removed.problems(gone, daemon=daemon is not None),
            *problems(found, workers, daemon, stragglers(world, workers), partial=partial),
        ],
    }
    return Answer(document, words)


def entries(survey: Survey, workers: Sequence[Worker], *, partial: bool) -> list[Entry]:
    """The workers' entries, and those of what was refused.

    Args:
        survey: all that was found.
        workers: those that were asked for.
        partial: whether only some were asked for; what was refused then belongs to nobody named.
    """
    return [*map(_worker, workers), *([] if partial else _refused(survey.refused))]


def stragglers(world: World, workers: Sequence[Worker]) -> Judged | None:
    """Who of them is slow; None where nobody has compared them."""
    judged = world.stragglers()
    return None if judged is None else judged.about({worker.name for worker in workers})


def problems(
    survey: Survey, workers: Sequence[Worker], daemon: Facts | None, slow: Judged | None, *, partial: bool
) -> list[Problem]:
    """What else is wrong, from the same as `entries`, with the daemon, and with who is slow: these come first."""
    found = [
        {"text": said, "command": f"brickd stragglers {as_argument(finding.about.service)}"}
        for finding, said in (slow.headlines() if slow is not None else ())
    ]
    if slow is not None and not slow.current:
        text = f"no worker is judged now: the last look at all workers was {duration(slow.age_ns)} ago"
        found.append({"text": text, "command": "brickd events"})
    off = Counter(worker.service for worker in workers if worker.reading.alive and worker.reading.off)
    found += [
        {
            "text": f"recording is off in {many(n, 'worker')} of {service}",
            "command": f"brickd set --recording on {as_argument(service)}",
        }
        for service, n in off.items()
    ]
    unread = sum(worker.reading.unread for worker in workers) if daemon is None else 0
    if unread:
        text = f"spans are on in {many(unread, 'worker')} and no process reads them: their reader was killed"
        found.append({"text": text, "command": "brickd up -d"})
    thinned = sum(worker.reading.thinned_for_nobody for worker in workers) if daemon is None else 0
    if thinned:
        text = f"fingerprints are set in {many(thinned, 'worker')} by a daemon that was killed"
        found.append({"text": text, "command": "brickd up -d"})
    refused = [] if partial else survey.refused
    if len(refused) > LISTED_MAX:
        found.append({"text": f"{len(refused):,} files are quarantined", "command": "brickd doctor"})
    found += [
        {"text": f"{error.path} is quarantined: {error.reason}", "command": _remedy(error)}
        for error in refused[:LISTED_MAX]
    ]
    if daemon is not None and daemon.checkpoint_problem is not None:
        text = f"the daemon cannot save what it knows: {daemon.checkpoint_problem}"
        found.append({"text": text, "command": "brickd events"})
    if daemon is not None and daemon.recording_problem is not None:
        text = f"what is being recorded cannot be written: {daemon.recording_problem}"
        found.append({"text": text, "command": "brickd events"})
    if daemon is not None and daemon.broken is not None:
        found.append({"text": f"the daemon began anew: {daemon.broken}", "command": "brickd events"})
    dead = [worker for worker in workers if not worker.reading.alive and not worker.reading.ended]
    if dead:
        more = sum(worker.together for worker in dead) - 1
        who = f"{dead[0].name} and {more:,} more" if more else dead[0].name
        found.append({"text": f"{who} died; what was recorded is kept", "command": "brickd prune"})
    found += [
        {"text": f"{worker.name}: {loss}", "command": f"brickd inspect {as_argument(worker.name)}"}
        for worker in workers
        for loss in losses(worker.reading, worker.ledger)
    ]
    return found


def _open(reading: Reading) -> list[dict[str, Any]]:
    """What a live worker's lanes have open, the longest first: the youngest span of each lane."""
    found = [
        {"brick": span.brick, "layer": span.layer, "since_ns": span.since_ns, "lane": number, "thread": lane["thread"]}
        for number, lane, _ in reading.lanes
        if lane["current"] and (span := opened.youngest(reading, lane)) is not None
    ]
    return sorted(found, key=lambda entry: (-(entry["since_ns"] or 0), entry["lane"]))


def _age_ns(reading: Reading) -> int | None:
    """Since the segment was made, by the worker's own clock; None where that says nothing."""
    if reading.now_ticks is None or not reading.alive:
        return None
    ticks = reading.now_ticks - reading.header["anchor_ticks"]
    return round(ticks * reading.tick_ns) if ticks >= 0 else None


def _set(reading: Reading) -> Entry:
    """What its consumer asks of it; by which patterns sites are left out a segment does not say."""
    told = settings(spans=reading.detailed, off=reading.off)
    return {**told, "fingerprints": words_of(reading.asked_rate), "filtered": bool(reading.left_out)}


def _worker(worker: Worker) -> Entry:
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
        "state": "live" if reading.alive else "ended" if reading.ended else "dead",
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
        "problem": str(problems[0]) if problems else None,
    }


def _refused(refused: Sequence[SegmentRefused]) -> list[Entry]:
    """The entries of the first, and one of all others together."""
    listed = [_quarantined(error.path, error.path, error.reason) for error in refused[:LISTED_MAX]]
    more = len(refused) - LISTED_MAX
    others = [_quarantined(OTHERS, None, many(more, "more file"), together=more)] if more > 0 else []
    return listed + others


def _quarantined(name: str, file: str | None, reason: str, *, together: int = 1) -> Entry:
    return {
        "name": name,
        "service": None,
        "index": None,
        "coordinates": None,
        "uuid": None,
        "segment": file,
        "pid": None,
        "state": "quarantined",
        "together": together,
        "set": None,
        "configured": None,
        "drained": None,
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
        "problem": reason,
    }


def _remedy(error: SegmentRefused) -> str:
    """What cannot be opened `prune` leaves alone; what costs too much may be a live worker's."""
    stays = isinstance(error, SegmentUnopened | SegmentOverBudget)
    return "brickd doctor" if stays else "brickd prune --refused"
