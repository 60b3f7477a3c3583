"""The verb `set`.

Owns: what is said of an order that was carried out, and of what is set. Must not know: how.
"""

from __future__ import annotations

from typing import Any

import click

from brickd import escape, units
from brickd.cli.answers import told
from brickd.cli.asking import asks
from brickd.cli.output import Screen, emit, output_options
from brickd.cli.tab import complete_services
from brickd.orders import Setting


@click.command("set")
@asks(Setting, complete_services)
@output_options
def set_(question: Setting, output: str) -> None:
    """What the workers of a service record from now on; without options, what is set."""
    document = told("set", question, post=True)
    emit(document, output, table=lambda seen: [_line(document, seen)])


def _line(document: dict[str, Any], seen: Screen) -> str:
    workers = units.many(document["workers"], "worker")
    said = f"{document['service']}: spans {document['spans']}, recording {document['recording']} in {workers}"
    return escape.text(said, seen.width)
