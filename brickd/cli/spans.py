"""The verb `spans`.

Owns: its options. Must not know: how spans are read, the screen.
"""

from __future__ import annotations

from collections.abc import Sequence

import click

from brickd.cli import progress
from brickd.cli.output import emit, output_options, print_message
from brickd.cli.query_options import asks
from brickd.export import longest_spans
from brickd.export.recorded_steps import require_recordings
from brickd.query.queries import SpansQuery
from brickd.recording.replay import opened_files
from brickd.screens.spans import render


@click.command()
@asks(SpansQuery)
@output_options
def spans(query: SpansQuery, recordings: Sequence[str], output: str) -> None:
    """List the longest spans of a recording.

    Needs a recording with spans ("brickd record --spans"). "brickd export" writes all spans into a file.

    \b
    Examples:
      brickd spans run.brick
      brickd spans run.brick api/0 --brick moe_gemm --longer 5ms -n 100
    """  # noqa: D301
    require_recordings("spans", recordings, query.names)
    with progress.reading() as reads, opened_files(recordings, reads) as forms:
        document, words = longest_spans.find(forms, query)
    for each in words:
        print_message(each)
    emit(document, output, table=lambda screen: render(document, screen), rows="spans")
