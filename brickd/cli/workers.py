"""The verb `workers`.

Owns: its options. Must not know: segments, the screen.
"""

from __future__ import annotations

from collections.abc import Sequence

import click

from brickd.cli.ask import asked
from brickd.cli.output import emit, output_options
from brickd.cli.query_options import asks
from brickd.query.queries import WorkersQuery
from brickd.screens.workers import render


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
    emit(document, output, table=lambda screen: render(document, screen), rows="workers")
