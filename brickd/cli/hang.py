"""The verb `hang`.

Owns: the two looks, the words of a verdict, the human screen. Must not know: how a verdict comes about. Invariants: the
verdicts come first; a service is judged by all of its workers, whichever were asked for; every worker that was asked
for has a row.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import click

from brickd import escape, units
from brickd import hang as hanging
from brickd.cli import phrases
from brickd.cli import table as tables
from brickd.cli.output import Screen, emit, output_options, say
from brickd.cli.ranges import Finite
from brickd.cli.selection import NOBODY, asked, names_argument
from brickd.cli.table import Column, Figure
from brickd.cli.waiting import watch
from brickd.errors import Exit
from brickd.hang import Lane, Place, Verdict, Watched
from brickd.verdicts import sentence
from brickd.workers import survey

_STATES = ("stuck", "moving", "idle", "dead")
_NEAREST = 8


@click.command()
@names_argument
@click.option("--watch", "watch_seconds", type=Finite(0.01, 3600), default=1.0, show_default=True, metavar="SECONDS",
              help="How long to watch whether anything moves.")  # fmt: skip
@click.option("--longer", type=Finite(0, 86400), default=1.0, show_default=True, metavar="SECONDS",
              help="A span that is younger is not stuck.")  # fmt: skip
@output_options
def hang(*, names: tuple[str, ...], watch_seconds: float, longer: float, output: str) -> Exit:
    """What is open per thread, and which worker is the odd one out.

    Exits 1 where one is named.
    """
    before, chosen = asked(names)
    after = before
    if chosen:
        watch(watch_seconds)
        after = survey()
    if after.refused:
        say(f"quarantined and not judged: {len(after.refused)} (see brickd workers)")
    earlier = {worker.reading.file: worker.reading for worker in before.workers}
    wanted = {worker.reading.file for worker in chosen}
    everybody, shown = [], []
    for worker in after.workers:
        file = worker.reading.file
        everybody.append(hanging.watched(worker, earlier.get(file), longer * 1e9))
        if file in wanted:
            shown.append(everybody[-1])
    verdicts = {
        service: hanging.judge([each for each in everybody if each.service == service])
        for service in sorted({each.service for each in shown})
    }
    document = {
        "schema_version": 1,
        "services": [_service(service, verdict) for service, verdict in verdicts.items()],
        "open": _rows(shown),
    }
    emit(document, output, table=lambda screen: _render(document, screen), rows="open")
    return Exit.DIFFERS if any(verdict.odd for verdict in verdicts.values()) else Exit.OK


# ---- the document


def _service(service: str, verdict: Verdict) -> dict[str, Any]:
    return {
        "service": service,
        "verdict": verdict.kind,
        "text": sentence(verdict),
        "workers": verdict.workers,
        **_place(verdict.place),
        "since_ns": verdict.since_ns,
        "odd": [
            {"worker": odd.worker, "state": odd.state, **_place(odd.place), "since_ns": odd.since_ns}
            for odd in verdict.odd
        ],
    }


def _place(place: Place | None) -> dict[str, Any]:
    return dict.fromkeys(Place._fields) if place is None else place._asdict()


def _rows(workers: Iterable[Watched]) -> list[dict[str, Any]]:
    """A row for each lane that has something open, and one for each worker that has nothing; the stuck come first."""
    rows = []
    for worker in workers:
        opened = [lane for lane in worker.lanes if lane.look.youngest is not None]
        rows += [_row(worker, lane) for lane in opened] or [_row(worker, None)]
    # Sorting keeps equals in the order of their names.
    return sorted(rows, key=lambda row: (_STATES.index(row["state"]), -(row["since_ns"] or 0)))


def _row(worker: Watched, lane: Lane | None) -> dict[str, Any]:
    span = lane.look.youngest if lane is not None else None
    return {
        "worker": worker.name,
        "service": worker.service,
        "lane": lane.number if lane is not None else None,
        "thread": lane.look.thread if lane is not None else None,
        "state": lane.state if lane is not None else worker.state,
        # How long a dead worker was in it nobody knows: only when that began.
        "since_ns": span.since_ns if span is not None and worker.alive else None,
        "brick": span.brick if span is not None else None,
        "layer": span.layer if span is not None else None,
        "open": lane.look.spans if lane is not None else 0,
        "path": span.path if span is not None else (),
    }


# ---- the screen


def _render(document: dict[str, Any], screen: Screen) -> list[str]:
    if not document["open"]:
        return [NOBODY]
    lines = []
    for service in document["services"]:
        line = escape.text(f"{service['service']}: {service['text']}")
        lines.append(screen.paint(line, "red") if service["odd"] else line)
    return lines + tables.figures(_FIGURES, document["open"], screen.width)


def _inside(path: Sequence[str]) -> str:
    """The bricks around the last of the path: the nearest first, for a cell is cut at its end."""
    around = path[-2::-1]
    return " < ".join([*around[:_NEAREST], *(["…"] if len(around) > _NEAREST else [])])


_FIGURES = (
    Figure(Column("WORKER"), "worker", str),
    Figure(Column("LANE", "right", spare=3), "lane", units.count),
    Figure(Column("THREAD", "right", spare=2), "thread", phrases.identifier),
    Figure(Column("STATE"), "state", str),
    Figure(Column("FOR", "right"), "since_ns", units.duration),
    Figure(Column("BRICK"), "brick", lambda brick: brick or "-"),
    Figure(Column("LAYER", "right", spare=4), "layer", phrases.identifier),
    Figure(Column("OPEN", "right", spare=5), "open", units.count),
    Figure(Column("INSIDE", spare=1), "path", _inside),
)
