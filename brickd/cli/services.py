"""The verb `services`.

Owns: its table. Must not know: where services come from.
"""

from __future__ import annotations

from collections.abc import Sequence

import click

from brickd.base import units
from brickd.cli import table as tables
from brickd.cli.ask import asked
from brickd.cli.output import emit, output_options
from brickd.cli.query_options import asks
from brickd.cli.shell_completion import complete_services
from brickd.cli.table import Column
from brickd.query.queries import ServicesQuery

_COLUMNS = (Column("SERVICE"), Column("WORKERS", "right"))


@click.command()
@asks(ServicesQuery, complete_services)
@output_options
def services(question: ServicesQuery, recordings: Sequence[str], output: str) -> None:
    """List the services and how many workers each has."""
    document = asked("services", question, recordings=recordings)
    rows = [(each["service"], units.count(each["workers"])) for each in document["services"]]
    emit(document, output, table=lambda screen: tables.lines(_COLUMNS, rows, screen.width), rows="services")
