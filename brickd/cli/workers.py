"""The verb `workers`.

Owns: the human screen of every worker. Must not know: segments. Invariant: every worker has its row, and every problem
its line.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from brickd.base import units
from brickd.base.units import NOBODY
from brickd.cli import table as tables
from brickd.cli import wording
from brickd.cli.ask import asked
from brickd.cli.output import Screen, emit, output_options
from brickd.cli.query_options import asks
from brickd.cli.table import Column
from brickd.query.queries import WorkersQuery

_COLUMNS = (
    Column("WORKER"),
    Column("PID", "right"),
    Column("STATE"),
    Column("AGE", "right", spare=2),
    Column("THREADS", "right"),
    Column("LANES", "right", spare=3),
    Column("SPANS", "right"),
    Column("LOST", "right"),
    Column("PATHS", "right", spare=4),
    Column("MEMORY", "right", spare=1),
)
_USAGE = (Column("CPU", "right", spare=6), Column("RSS", "right", spare=5))  # where somebody knows it
_OPEN = Column("OPEN NOW")


@click.command()
@asks(WorkersQuery)
@output_options
def workers(question: WorkersQuery, recordings: Sequence[str], output: str) -> None:
    """List every worker: threads, spans, losses, memory, open spans.

    Also shows how much room is left in each worker's tables. With a daemon, it also shows the processor time and memory
    of each process. "off" marks a live worker that records nothing because of "brickd set". "spans" marks a worker that
    records each span in detail.
    """
    document = asked("workers", question, recordings=recordings)
    emit(document, output, table=lambda screen: _render(document, screen), rows="workers")


def _render(document: dict[str, Any], screen: Screen) -> list[str]:
    workers, removed = document["workers"], document["removed"]
    of = {"workers": sum(each["together"] for each in removed), "spans": sum(each["spans"] for each in removed)}
    said = [*(wording.problem(problem, screen) for problem in document["problems"]), *wording.removed(of, screen)]
    if not workers:
        return [NOBODY, *said]
    used = any(worker["rss_bytes"] is not None for worker in workers)
    columns = (*_COLUMNS, *(_USAGE if used else ()), _OPEN)
    rows = [(*_cells(worker), *(_usage(worker) if used else ()), wording.open_now(worker)) for worker in workers]
    return tables.lines(columns, rows, screen.width) + said


def _cells(worker: dict[str, Any]) -> tuple[str, ...]:
    return (
        worker["name"],
        str(worker["pid"] or "-"),
        wording.state(worker),
        units.duration(worker["age_ns"]),
        units.count(worker["threads"]),
        _share(worker["lanes"]),
        units.count(worker["ledger"]["spans"]["summarized"]),
        units.count(worker["lost"]),
        _share(worker["paths"]),
        units.size(worker["memory_bytes"]),
    )


def _usage(worker: dict[str, Any]) -> tuple[str, ...]:
    cpu = worker["cpu_percent"]
    return ("-" if cpu is None else units.percent(cpu), units.size(worker["rss_bytes"]))


def _share(of: dict[str, int] | None) -> str:
    return "-" if of is None else f"{units.count(of['used'])}/{units.count(of['room'])}"
