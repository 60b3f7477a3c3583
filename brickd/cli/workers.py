"""The verb `workers`.

Owns: the screen of all workers. Must not know: segments. Invariant: every worker has a row, and every problem has a
line.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from brickd.base import units
from brickd.cli.ask import asked
from brickd.cli.output import emit, output_options
from brickd.cli.query_options import asks
from brickd.query.queries import WorkersQuery
from brickd.screens import table as tables
from brickd.screens import wording
from brickd.screens.screen import Screen
from brickd.screens.table import Column, Figure


def _share(of: dict[str, int] | None) -> str:
    return "-" if of is None else f"{units.count(of['used'])}/{units.count(of['room'])}"


_FIGURES = (
    Figure(Column("WORKER"), "name", str),
    Figure(Column("PID", "right"), "pid", lambda pid: str(pid or "-")),
    Figure(Column("STATE"), "state", str),
    Figure(Column("AGE", "right", spare=2), "age_ns", units.duration),
    Figure(Column("THREADS", "right"), "threads", units.count),
    Figure(Column("LANES", "right", spare=3), "lanes", _share),
    Figure(Column("SPANS", "right"), "spans", units.count),
    Figure(Column("LOST", "right"), "lost", str),
    Figure(Column("PATHS", "right", spare=4), "paths", _share),
    Figure(Column("MEMORY", "right", spare=1), "memory_bytes", units.size),
)
_USAGE = (  # these columns are shown only if an entry has the value
    Figure(Column("CPU", "right", spare=6), "cpu_percent", units.percent),
    Figure(Column("RSS", "right", spare=5), "rss_bytes", units.size),
)
_OPEN = Figure(Column("OPEN NOW"), "open", str)


@click.command()
@asks(WorkersQuery)
@output_options
def workers(query: WorkersQuery, recordings: Sequence[str], output: str) -> None:
    """List every worker: threads, spans, losses, memory, open spans.

    Also shows how much room is left in each worker's tables. With a daemon, also shows the processor time and memory of
    each process. "off" marks a live worker that records nothing because of "brickd set". "spans" marks a worker that
    records each span in detail.
    """
    document = asked("workers", query, recordings=recordings)
    emit(document, output, table=lambda screen: _render(document, screen), rows="workers")


def _render(document: dict[str, Any], screen: Screen) -> list[str]:
    workers, removed = document["workers"], document["removed"]
    of = {"workers": sum(each["together"] for each in removed), "spans": sum(each["spans"] for each in removed)}
    notes = [line for problem in document["problems"] for line in wording.problem(problem, screen)]
    if lost := wording.lost(document):
        notes.append(f"lost in all: {lost}")
    notes += [*wording.silenced(document["silenced"]), *wording.removed(of, screen)]
    if not workers:
        return [wording.no_workers(document), *notes]
    used = any(worker["rss_bytes"] is not None for worker in workers)
    figures = (*_FIGURES, *(_USAGE if used else ()), _OPEN)
    return tables.figures(figures, map(wording.worker_row, workers), screen.width) + notes
