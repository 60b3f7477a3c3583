"""The verb `status`.

Owns: its options, and the exit code of --check. Must not know: segments, what is healthy, the screen.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import click

from brickd.base.timestamps import rfc3339
from brickd.base.units import SECOND
from brickd.cli import progress
from brickd.cli.ask import asked, noted
from brickd.cli.output import column_option, emit, output_options
from brickd.cli.query_options import ParameterType, asks
from brickd.cli.watch_loop import again
from brickd.errors import Exit
from brickd.query.parameters import Duration
from brickd.query.queries import StatusQuery
from brickd.query.query import to_query
from brickd.screens import health
from brickd.screens.health import Bounds
from brickd.screens.status import render
from brickd.views import fetch_answer
from brickd.views.fetch_answer import FetchedAnswer
from brickd.views.next_command import command

if TYPE_CHECKING:
    from brickd.views.common import Document


@click.command()
@asks(StatusQuery)
@click.option("--watch", "seconds", type=ParameterType(Duration(0.1, 3600, "")), is_flag=False, flag_value="2s",
              metavar="[DURATION]", help="Repeat every DURATION (default: 2s).")  # fmt: skip
@click.option("--check", is_flag=True, help="Print one line that says whether all is well. Exit 1 if not.")
@asks(Bounds, keyword="bounds")
@column_option
@output_options
def status(
    *,
    query: StatusQuery,
    recordings: Sequence[str],
    seconds: float | None,
    check: bool,
    bounds: Bounds,
    more: Sequence[str],
    output: str,
) -> Exit | None:
    """Show totals over all workers, problems first.

    With a daemon, the table of bricks shows the last 60 seconds. Without a daemon, or with --over start, it shows the
    totals since each worker's start. For a recording, it shows the totals at the end of the recording. On a pipe,
    --watch --json prints one document per line.

    \b
    Examples:
      brickd status
      brickd status api --watch
      brickd status api --over 1h --against yesterday
      brickd status --check --ignore removed
      brickd status night.brick
    """  # noqa: D301
    if recordings and seconds is not None:
        raise click.UsageError(f"--watch contradicts recording {recordings[0]}: give one of them")
    for option, time in (("--at", query.at), ("--to", query.until)):
        if time is not None and seconds is not None:
            given = f"{option} {rfc3339(round(time * SECOND))}"
            raise click.UsageError(f"--watch contradicts {given}: a past time does not change (omit --watch)")
    if check and seconds is not None:
        raise click.UsageError("--check contradicts --watch: give one of them")
    if bounds != Bounds() and not check:
        raise click.UsageError(f"--{to_query(bounds)[0][0]} needs --check: add it")
    find = partial(fetch_answer.find, "status", query, recordings=recordings, reading=progress.reading)
    if seconds is not None:
        again(seconds, find, partial(render, more=more), output)
    if check:
        return _check(find(), query, bounds, output)
    document = asked("status", query, recordings=recordings)
    emit(document, output, table=lambda screen: render(_timed(document, query), screen, more), rows="bricks")
    return None


def _timed(document: Document, query: StatusQuery) -> Document:
    """Return the document. Raise KeyError if an older daemon answered about now a query about a past time."""
    if query.at is not None or query.until is not None:
        document["at"]
    return document


def _check(found: FetchedAnswer, query: StatusQuery, bounds: Bounds, output: str) -> Exit:
    """Judge a status document, and print the line."""
    status = _timed(noted(found), query)
    judged = [
        each if each.command is None else each._replace(command=command(status, each.command))
        for each in health.conditions(status, found.missing, bounds)
    ]
    well = health.healthy(judged)
    document = {
        "schema_version": 1,
        "source": status["source"],
        "healthy": well,
        "conditions": [condition._asdict() for condition in judged],
    }
    emit(document, output, table=lambda screen: [health.line(judged, screen)], rows="conditions")
    return Exit.OK if well else Exit.DIFFERS
