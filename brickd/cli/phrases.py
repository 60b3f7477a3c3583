"""What several verbs write in the same words: numbers that are names, what is open, a problem.

Owns: those words. Must not know: any one verb. Invariants: a cell is a raw string, for the table escapes it; a finished
line is escaped here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from brickd import escape, units
from brickd.cli.output import Screen

_BOUND = "≤"


def identifier(number: int | None) -> str:
    """A number that is a name, as those of layers and threads, as a cell."""
    return "-" if number is None else str(number)


def brick(entry: dict[str, Any]) -> str:
    """A brick's name, as a cell; marked where its times are bounds."""
    return f"{entry['name']} {_BOUND}" if entry["bounded"] else str(entry["name"])


def bounds(entries: Iterable[dict[str, Any]], screen: Screen) -> list[str]:
    """What the mark means, as a finished line; nothing where nothing is marked."""
    said = f"{_BOUND} not measured: a part of the time until the device was waited for"
    return [escape.text(said, screen.width)] if any(entry["bounded"] for entry in entries) else []


def over(document: dict[str, Any]) -> str:
    """The time over which a document counts, as it stands behind other words; nothing where that is all of it."""
    length_ns = document["over_ns"]
    return "" if length_ns is None else f", last {length_ns / 1e9:.0f} s"


def nothing(document: dict[str, Any]) -> str:
    """What to say where no span was counted."""
    return "no spans yet" if document["over_ns"] is None else f"no spans in the{over(document)[1:]}"


def state(worker: dict[str, Any]) -> str:
    """Whether a worker lives, as a cell; marked where it does not record as usual."""
    told = worker["set"] or {}
    mark = ", off" if told.get("recording") == "off" else ", spans" if told.get("spans") == "on" else ""
    return f"{worker['state']}{mark}"


def open_now(worker: dict[str, Any]) -> str:
    """Of the youngest spans of a worker's threads the one that is open the longest, as a cell."""
    return "".join(f"{span['brick']} {units.duration(span['since_ns'])}" for span in worker["open"][:1])


def problem(told: dict[str, str], screen: Screen) -> str:
    """A problem and the next command as a finished line: the text is cut, the command never."""
    command = escape.text(told["command"])
    room = None if screen.width is None else max(20, screen.width - escape.width(command) - 4)
    return screen.paint(f"! {escape.text(told['text'], room)}", "yellow") + f"  {command}"
