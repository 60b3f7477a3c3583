"""The verb `bricks`.

Owns: its options. Must not know: segments, the screen.
"""

from __future__ import annotations

from collections.abc import Sequence

import click

from brickd.cli.ask import asked
from brickd.cli.output import column_option, emit, output_options
from brickd.cli.query_options import asks
from brickd.query.queries import BricksQuery
from brickd.screens.bricks import render


@click.command()
@asks(BricksQuery)
@column_option
@output_options
def bricks(query: BricksQuery, recordings: Sequence[str], more: Sequence[str], output: str) -> None:
    """Show the totals of every brick.

    The table has one row per brick, the largest self time first.

    \b
    Examples:
      brickd bricks --top 20
      brickd bricks api --over 10s --sort p99
      brickd bricks --by worker
    """  # noqa: D301
    document = asked("bricks", query, recordings=recordings)
    emit(document, output, table=lambda screen: render(document, screen, more), rows="bricks")
