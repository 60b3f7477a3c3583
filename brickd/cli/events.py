"""The verb `events`.

Owns: its options, and how new events are followed. Must not know: the causes of events, the screen. Invariant: events
that were missed are counted.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from typing import NoReturn

import click

from brickd.base.units import plural
from brickd.cli.ask import ask_daemon, asked
from brickd.cli.output import emit, output_options, print_message
from brickd.cli.query_options import asks
from brickd.client import client
from brickd.errors import NoDaemon
from brickd.query.queries import EventsQuery
from brickd.query.query import to_query
from brickd.screens.events import lines, render


@click.command()
@asks(EventsQuery)
@click.option("--follow", is_flag=True, help="Keep running and print each new event.")
@output_options
def events(query: EventsQuery, recordings: Sequence[str], *, follow: bool, output: str) -> None:
    """List the events that the daemon logged.

    An event is, for example, a new or dead worker, lost records, or a new verdict. Each event has the next command to
    run.
    """
    if recordings and follow:
        raise click.UsageError(f"--follow contradicts recording {recordings[0]}: give one of them")
    if follow:
        _follow(query, output)
    document = asked("events", query, recordings=recordings) if recordings else ask_daemon("events", query)
    _missed(document["missed"])
    emit(document, output, table=lambda screen: render(document, screen, query.since), rows="events")


def _follow(query: EventsQuery, output: str) -> NoReturn:
    if output == "csv":
        raise click.UsageError("--output is csv, expected table, json or jsonl with --follow")
    for name, event in client.ask("events/stream", to_query(query)).events():
        if name == "missed":
            _missed(event["missed"])
        else:
            emit(event, "table" if output == "table" else "jsonl", table=partial(lines, event))
            sys.stdout.flush()
    raise NoDaemon("the daemon has ended (start one: brickd up)")


def _missed(count: int) -> None:
    if count:
        print_message(f"{plural(count, 'earlier event is', 'earlier events are')} no longer stored")
