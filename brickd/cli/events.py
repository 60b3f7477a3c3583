"""The verb `events`.

Owns: the screen of events. Must not know: the causes of events. Invariant: events that were missed are counted.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from typing import Any, NoReturn

import click

from brickd.base import escape
from brickd.base.units import plural, write_duration
from brickd.cli.ask import ask_daemon, asked
from brickd.cli.output import emit, output_options, print_message
from brickd.cli.query_options import asks
from brickd.client import client
from brickd.errors import NoDaemon
from brickd.query.queries import EventsQuery
from brickd.query.query import to_query
from brickd.screens.screen import Screen
from brickd.views.next_command import command

Event = dict[str, Any]


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
    emit(document, output, table=partial(_render, document["events"], empty=_none(query, document)), rows="events")


def _follow(query: EventsQuery, output: str) -> NoReturn:
    if output == "csv":
        raise click.UsageError("--output is csv, expected table, json or jsonl with --follow")
    for name, event in client.ask("events/stream", to_query(query)).events():
        if name == "missed":
            _missed(event["missed"])
        else:
            emit(event, "table" if output == "table" else "jsonl", table=partial(_render, [event]))
            sys.stdout.flush()
    raise NoDaemon("the daemon has ended (start one: brickd up)")


def _missed(count: int) -> None:
    if count:
        print_message(f"{plural(count, 'earlier event is', 'earlier events are')} no longer stored")


def _none(query: EventsQuery, document: dict[str, Any]) -> str:
    """Return the text to show if there is no event. If there are older events, it has the command that lists them."""
    newest = document["newest"]
    if not newest:
        return "nothing has happened yet"
    since = f"in the last {write_duration(query.since)}" if isinstance(query.since, float) else f"after {query.since:,}"
    time = document.get("newest_time")  # older daemons do not send it
    at = f" of {time}" if time else ""
    return f"no event {since}: the newest is number {newest:,}{at} ({command(document, 'brickd events')})"


def _render(events: Sequence[Event], seen: Screen, empty: str = "") -> list[str]:
    return [line for event in events for line in _lines(event, seen)] or [empty]


def _lines(event: Event, seen: Screen) -> list[str]:
    """Return the lines of an event; nothing is cut. The next command is always on a single line."""
    said = f"{event['time']}  {event['kind']}  {event['text']}"
    first, *others = escape.wrapped(said, None if seen.width is None else max(20, seen.width - 2))
    lines = [first, *(f"  {line}" for line in others)]
    if event["command"]:
        command = f"  {escape.text(event['command'])}"
        if seen.width is None or escape.width(lines[-1]) + escape.width(command) <= seen.width:
            lines[-1] += command
        else:
            lines.append(command)
    return lines
