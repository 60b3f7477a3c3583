"""The verb `set`.

Owns: what is said of an order that was carried out. Must not know: how.
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
    """What the workers of a service record from now on."""
    document = told("set", question, post=True)
    emit(document, output, table=lambda seen: [_line(document, seen)])


def _line(document: dict[str, Any], seen: Screen) -> str:
    done = [f"{what} {document[what]}" for what in ("spans", "recording") if document[what] is not None]
    workers = units.many(document["workers"], "worker")
    return escape.text(f"{document['service']}: {', '.join(done)} in {workers}", seen.width)
