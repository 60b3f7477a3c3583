"""The view `hang`: the open spans of each thread, and which workers are outliers.

Owns: the schema of the document, and which parts of it come from the first look at the workers and which from the
second. Must not know: how a verdict is reached, how the time between the looks passes, screens. Invariants: The
verdicts come first. A service is judged by all its workers, not only by the selected ones. Each selected worker has a
row.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from brickd.analysis.timing.hang import ComparedLane, HangVerdict, LanePosition, Watched, judge, watched
from brickd.analysis.timing.hang_text import sentence
from brickd.base import units
from brickd.datasources.world import World
from brickd.query.queries import HangQuery
from brickd.recording.replay import Replay
from brickd.views.common import Answer, ChosenWorkers, begun, chosen

_STATES = ("stuck", "moving", "idle", "ended", "died")


def look(world: World, query: HangQuery) -> ChosenWorkers:
    """Take the first look. If there are no workers, no wait is needed."""
    return chosen(world, query.names)


def answer(world: World, query: HangQuery, before: ChosenWorkers) -> Answer:
    """Take the second look, some time after the first look, and judge the workers."""
    after = world.survey() if before.workers else before.survey
    earlier = {worker.reading.file: worker.reading for worker in before.survey.workers}
    wanted = {worker.reading.file for worker in before.workers}
    everybody, shown = [], []
    for worker in after.workers:
        file = worker.reading.file
        everybody.append(watched(worker, earlier.get(file), query.longer * 1e9))
        if file in wanted:
            shown.append(everybody[-1])
    verdicts = {
        service: judge([each for each in everybody if each.service == service])
        for service in sorted({each.service for each in shown})
    }
    document = {
        **begun(world),
        "services": [_service(service, verdict) for service, verdict in verdicts.items()],
        "open": _rows(shown),
    }
    unjudged = f"quarantined and not judged: {len(after.refused)} (see brickd workers)"
    return Answer(document, before.words + ((unjudged,) if after.refused else ()))


def _service(service: str, verdict: HangVerdict) -> dict[str, Any]:
    return {
        "service": service,
        "verdict": verdict.kind,
        "text": sentence(verdict),
        "workers": verdict.workers,
        **_place(verdict.place),
        "since_ns": verdict.since_ns,
        "odd": [
            {"worker": outlier.worker, "state": outlier.state, **_place(outlier.place), "since_ns": outlier.since_ns}
            for outlier in verdict.outliers
        ],
    }


def _place(place: LanePosition | None) -> dict[str, Any]:
    return dict.fromkeys(LanePosition._fields) if place is None else place._asdict()


def _rows(workers: Iterable[Watched]) -> list[dict[str, Any]]:
    """Return a row for each lane with an open span, stuck lanes first. A worker without open spans has one row."""
    rows = []
    for worker in workers:
        opened = [lane for lane in worker.lanes if lane.look.youngest is not None]
        rows += [_row(worker, lane) for lane in opened] or [_row(worker, None)]
    # Sorting is stable, so equal rows stay in the order of the workers.
    return sorted(rows, key=lambda row: (_STATES.index(row["state"]), -(row["since_ns"] or 0)))


def _row(worker: Watched, lane: ComparedLane | None) -> dict[str, Any]:
    span = lane.look.youngest if lane is not None else None
    return {
        "worker": worker.name,
        "service": worker.service,
        "lane": lane.number if lane is not None else None,
        "thread": lane.look.thread if lane is not None else None,
        "state": lane.state if lane is not None else worker.state,
        # For a dead worker, only the start of a span is known, so its duration is unknown.
        "since_ns": span.since_ns if span is not None and worker.alive else None,
        "brick": span.brick if span is not None else None,
        "layer": span.layer if span is not None else None,
        "open": lane.look.spans if lane is not None else 0,
        "path": span.path if span is not None else (),
    }


def of_recording(world: Replay, query: HangQuery) -> Answer:
    """Compare the last two snapshots of a recording."""
    earlier = world.before()
    found = answer(world, query, look(earlier, query))
    apart = units.duration(world.now_ns() - earlier.now_ns())
    return found._replace(words=(f"the last two snapshots are compared, {apart} apart", *found.words))
