"""The verb `history`.

Owns: its options. Must not know: slots of the last day, the screen.
"""

from __future__ import annotations

from collections.abc import Sequence

import click

from brickd.cli.ask import asked
from brickd.cli.output import emit, output_options
from brickd.cli.query_options import asks
from brickd.query.queries import HistoryQuery
from brickd.screens.history import render


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
    emit(document, output, table=lambda screen: render(document, screen), rows="slots")
