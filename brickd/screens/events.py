"""The screen of events.

Owns: the lines of an event. Must not know: the causes of events. Invariant: nothing of an event is cut.
"""

from __future__ import annotations

from typing import Any

from brickd.base import escape
from brickd.base.units import write_duration
from brickd.screens.screen import Screen
from brickd.views.next_command import command


def render(document: dict[str, Any], screen: Screen, since: float = 0) -> list[str]:
    """Return the lines of the screen. `since` is what was asked for: the number of an event, or seconds as a float."""
    return [line for event in document["events"] for line in lines(event, screen)] or [_none(document, since)]


def lines(event: dict[str, Any], screen: Screen) -> list[str]:
    """Return the lines of an event; nothing is cut. The next command is always on a single line."""
    text = f"{event['time']}  {event['kind']}  {event['text']}"
    first, *others = escape.wrapped(text, None if screen.width is None else max(20, screen.width - 2))
    shown = [first, *(f"  {line}" for line in others)]
    if event["command"]:
        then = f"  {escape.text(event['command'])}"
        if screen.width is None or escape.width(shown[-1]) + escape.width(then) <= screen.width:
            shown[-1] += then
        else:
            shown.append(then)
    return shown


def _none(document: dict[str, Any], after: float) -> str:
    """Return the text to show if there is no event. If there are older events, it has the command that lists them."""
    newest = document["newest"]
    if not newest:
        return "nothing has happened yet"
    since = f"in the last {write_duration(after)}" if isinstance(after, float) else f"after {after:,}"
    time = document.get("newest_time")  # older daemons do not send it
    at = f" of {time}" if time else ""
    return f"no event {since}: the newest is number {newest:,}{at} ({command(document, 'brickd events')})"
