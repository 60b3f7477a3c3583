"""The verb `stragglers`.

Owns: its options, its exit code. Must not know: how stragglers are judged, the screen.
"""

from __future__ import annotations

from collections.abc import Sequence

import click

from brickd.cli.ask import asked
from brickd.cli.completion import complete_services
from brickd.cli.output import emit, output_options
from brickd.cli.query_options import asks
from brickd.errors import Exit
from brickd.query.queries import StragglersQuery
from brickd.screens.stragglers import render


@click.command()
@asks(StragglersQuery, complete_services)
@output_options
def stragglers(query: StragglersQuery, recordings: Sequence[str], output: str) -> Exit:
    """Name the worker that is slow, in which brick, at what cost.

    Needs a daemon or a recording, and three or more workers of a service. If no worker is slow, shows which bricks were
    compared, and why others were not. Exits 1 if a worker is named.
    """
    document = asked("stragglers", query, recordings=recordings)
    emit(document, output, table=lambda screen: render(document, screen), rows="stragglers")
    return Exit.DIFFERS if document["stragglers"] or document["waiting"] else Exit.OK
