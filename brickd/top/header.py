"""The first lines of the screen: the verdict, the time of the data, its source, and what is wrong with it.

Owns: these lines. Must not know: textual, lists, the open panel. Invariants: What must never be cut comes first. A long
error does not hide the age of the data.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

from brickd.base import escape, units
from brickd.base.timestamps import clock
from brickd.screens import status
from brickd.screens.screen import Screen
from brickd.top import lines as texts
from brickd.top.frame import Frame
from brickd.top.lines import Line, joined, line, painted
from brickd.top.state import State

Document = dict[str, Any]

_STALE_SECONDS = 3.0  # data older than this many seconds, beyond the interval, is called old
LEAST_ERROR = 20  # an error keeps this many cells, so that the age of the data does not hide it
_NOTE_LINES, _LOW = 3, 20  # the most lines of a note; a screen with fewer lines than this shows one line of it
TITLE, _SHORT_TITLE, _WIDE = "brickd top", "top", 40
_OF_NOW = "the workers and problems are the present ones; panels 8 and 9 show this time"


class Cells(NamedTuple):
    """The size of the screen in cells; `height` is None if all rows are shown."""

    width: int
    height: int | None


def header(state: State, frame: Frame, width: int) -> Line:
    """Return the first line."""
    document = frame.status.document
    name, names = line(TITLE if width >= _WIDE else _SHORT_TITLE, "title"), line(escape.text(" ".join(state.names)))
    if document is None:
        return texts.cut(joined([name, names]), width)
    time_shown, *others = _when(state, frame, document)
    past, now = (texts.EMPTY, time_shown) if state.cursor is None else (time_shown, texts.EMPTY)
    paused = line("PAUSED", "selected") if state.paused else texts.EMPTY
    # what must never be cut comes first
    parts = [name, past, paused, painted(status.verdict_line(document, _PAINTING)), names, now, *others]
    return texts.cut(joined(parts), width)


_PAINTING = Screen(None, colour=True)


def shown_at(state: State, frame: Frame) -> float:
    """Return the time of the shown data: of a snapshot, of the cursor, or of the newest answer."""
    shown = ((frame.status.document or {}).get("recording") or {}).get("shown")
    if shown is not None:
        return datetime.fromisoformat(shown).timestamp()
    return state.cursor if state.cursor is not None else frame.status.received


def _when(state: State, frame: Frame, document: Document) -> list[Line]:
    at = shown_at(state, frame)
    stamp = clock(at)
    cursor = line(f"AT {stamp}", "selected") if state.cursor is not None else line(stamp)
    every = texts.EMPTY if frame.recorded else line(_every(state.interval, frame.spacing))
    return [cursor, line(escape.text(str(document["source"]))), every]


def _every(interval: float, spacing: float) -> str:
    chosen = units.write_duration(interval)
    return f"every {chosen}" if spacing <= interval else f"every {units.duration(spacing * 1e9)}, not {chosen}"


def notices(state: State, frame: Frame, size: Cells) -> list[Line]:
    """Return why the data is old, or a note about it."""
    kept, width = frame.status, size.width
    now = frame.newest if not frame.recorded else kept.received
    if kept.error is not None:
        known = kept.document is not None and kept.document["problems"] is not None
        age = f"; the data is {units.duration((now - kept.received) * 1e9)} old" if known else ""
        return [line(failed(kept.error, age, width), "red")]
    if frame.seconds > state.interval + _STALE_SECONDS:
        return [line(escape.text(f"~ slow: the answers took {units.duration(frame.seconds * 1e9)}", width), "yellow")]
    # an earlier version of the daemon ignores the time
    of_now = state.cursor is not None and not frame.recorded and "at" not in (kept.document or {"at": None})
    words = [_OF_NOW] if of_now else kept.words[:1]
    return [part for each in words for part in _note(each, size)]


def _note(text: str, size: Cells) -> list[Line]:
    """Return a note in lines: a long one is cut only after some lines, and on a low screen after one."""
    found = escape.wrapped(f"~ {text}", size.width)
    most = len(found) if size.height is None else _NOTE_LINES if size.height >= _LOW else 1
    if len(found) > most:
        found[most - 1 :] = [escape.text(" ".join(found[most - 1 :]), size.width)]
    return [line(each, "yellow") for each in found]


def failed(error: str, age: str, width: int) -> str:
    """Return the text of an error. A long error does not hide the age of the data."""
    return escape.text(escape.text(f"! {error}", max(LEAST_ERROR, width - len(age))) + age, width)
