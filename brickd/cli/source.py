"""The verb `source`.

Owns: how a text is written to stdout. Must not know: where sources come from, the screen. Invariants: A pipe or a file
gets the exact bytes of a text. On a terminal, control characters in the text have no effect.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from brickd.base import escape
from brickd.cli.ask import asked
from brickd.cli.completion import complete_sources
from brickd.cli.output import emit, output_options
from brickd.cli.query_options import asks
from brickd.query.queries import SourceQuery
from brickd.screens.source import render

_TAB = 8


@click.command()
@asks(SourceQuery, complete_sources)
@output_options
def source(query: SourceQuery, recordings: Sequence[str], output: str) -> None:
    """List the sources that kernels were compiled from, or print one.

    HASH is the hexadecimal number after the @ of a launch, or its first digits. With HASH, prints the text of that
    source unchanged, but escapes control characters on a terminal. Without HASH, lists the sources, the kernels and
    workers that refer to each source, and why a text is not known.
    """
    document = asked("source", query, recordings=recordings)
    if document["text"] is not None and output == "table":
        _write(document["text"])
    else:
        emit(document, output, table=lambda screen: render(document, screen), rows="sources")


def _write(text: str) -> None:
    if sys.stdout.isatty():
        for line in text.removesuffix("\n").split("\n"):
            click.echo("\t".join(map(escape.text, line.split("\t"))).expandtabs(_TAB))
    else:
        sys.stdout.flush()
        sys.stdout.buffer.write(text.encode("utf-8", "surrogateescape"))
