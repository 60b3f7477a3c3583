"""The verb `inspect`.

Owns: its options. Must not know: how a segment is read, the screen.
"""

from __future__ import annotations

from collections.abc import Sequence

import click

from brickd.cli.ask import asked
from brickd.cli.completion import complete_segments
from brickd.cli.output import emit, output_options
from brickd.cli.query_options import asks
from brickd.query.queries import InspectQuery
from brickd.screens.inspect import render


@click.command()
@asks(InspectQuery, complete_segments)
@output_options
def inspect(query: InspectQuery, recordings: Sequence[str], output: str) -> None:
    """Show one segment in full: header, lanes, ledger, rings.

    Name a segment by its worker or by its file name. Shows the newest records of each ring. With a daemon, also shows
    the newest spans that the daemon drained, and the longest span of each place.
    """
    document = asked("inspect", query, recordings=recordings)
    emit(document, output, table=lambda screen: render(document, screen), rows="lanes")
