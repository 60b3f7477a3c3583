"""The verb `coverage`.

Owns: its options. Must not know: how coverage is judged, the screen.
"""

from __future__ import annotations

from collections.abc import Sequence

import click

from brickd.cli.ask import asked
from brickd.cli.completion import complete_services
from brickd.cli.output import emit, output_options
from brickd.cli.query_options import asks
from brickd.query.queries import CoverageQuery
from brickd.screens.coverage import render


@click.command()
@asks(CoverageQuery, complete_services)
@output_options
def coverage(query: CoverageQuery, recordings: Sequence[str], output: str) -> None:
    """Show which computed values were compared, and which were not.

    For each site (a kernel and its layers), shows how many fingerprints were compared with another worker, and by which
    evidence. If nothing was compared, shows the reason.
    """
    document = asked("coverage", query, recordings=recordings)
    emit(document, output, table=lambda screen: render(document, screen), rows="sites")
