"""The verb `history`.

Owns: the screen of a history. Must not know: slots of the last day. Invariant: a period without a slot has no row. Each
row shows when it begins, so the gap is visible.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import click

from brickd.base import units
from brickd.cli.ask import asked
from brickd.cli.output import emit, output_options
from brickd.cli.query_options import asks
from brickd.query.queries import HistoryQuery
from brickd.screens import table as tables
from brickd.screens.screen import Screen
from brickd.screens.table import Column, Figure

_FIGURES = (
    Figure(Column("WORKERS", "right", spare=3), "workers", units.count),
    Figure(Column("COUNT", "right", spare=2), "count", units.count),
    Figure(Column("COUNT/S", "right"), "count_per_second", units.count),
    Figure(Column("MEDIAN", "right"), "p50_ns", units.duration),
    Figure(Column("P99", "right"), "p99_ns", units.duration),
    Figure(Column("SELF", "right", spare=1), "self_ns", units.duration),
    Figure(Column("LOST", "right"), "lost", units.count),
)


@click.command()
@asks(HistoryQuery)
@output_options
def history(query: HistoryQuery, recordings: Sequence[str], output: str) -> None:
    """Show rates, percentiles and losses over the last day.

    The table has one row for each piece of time, the oldest first. It adds up all named workers and services. Needs a
    daemon or a recording. A daemon keeps one hour in slots of 10 seconds, and 48 hours in slots of 5 minutes.

    \b
    Examples:
      brickd history api
      brickd history api --brick moe_gemm --over 24h --every 1h
      brickd history api/3 --from 02:00 --to 03:00
    """  # noqa: D301
    document = asked("history", query, recordings=recordings)
    emit(document, output, table=lambda screen: _render(document, screen), rows="slots")


def _render(document: dict[str, Any], screen: Screen) -> list[str]:
    slots = document["slots"]
    if not slots:
        return ["no slots yet"]
    times = [datetime.fromisoformat(each["from"]).astimezone() for each in slots]
    dated = "%Y-%m-%d " if times[0].date() != times[-1].date() else ""
    of = "ALL BRICKS" if document["brick"] is None else document["brick"]
    begin = Figure(Column(f"FROM ({of})"), "begin", str)
    rows = [each | {"begin": f"{time:{dated}%H:%M:%S}"} for each, time in zip(slots, times, strict=True)]
    return tables.figures((begin, *_FIGURES), rows, screen.width)
