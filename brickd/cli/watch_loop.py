"""Shows a document repeatedly.

Owns: when the document is requested, how it replaces the previous one. Must not know: what the document shows.
Invariants: On a terminal, nothing of the previous screen remains and nothing scrolls. On a pipe, each document is
written at once: as one line of JSON, or as one screen followed by an empty line. The same notes are not printed twice
in a row.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NoReturn

import click

from brickd.base import escape
from brickd.cli.output import emit, print_message
from brickd.screens.screen import Screen, screen_of
from brickd.views.fetch_answer import FetchedAnswer

if TYPE_CHECKING:
    from brickd.views.common import Document

_HOME, _CLEAR, _REST_OF_LINE, _REST = "\x1b[H", "\x1b[2J", "\x1b[K", "\x1b[J"

Table = Callable[["Document", Screen], Sequence[str]]


def again(seconds: float, find: Callable[[], FetchedAnswer], table: Table, output: str) -> NoReturn:
    """Show the answer of `find` every `seconds` seconds, until the user stops this."""
    if output not in ("table", "json"):
        raise click.UsageError(f"--output is {output}, expected table or json with --watch")
    drawn, printed = output == "table" and sys.stdout.isatty(), tuple[str, ...]()
    if drawn:
        sys.stdout.write(_CLEAR)
    due = time.monotonic()
    while True:
        found = find()
        if drawn:
            seen = screen_of(sys.stdout)
            remarks = [escape.text(f"brickd: {each}", seen.width) for each in found.words]
            _draw([*table(found.document, seen), *remarks])
        else:
            _print(found, table, output)
            for words in found.words if found.words != printed else ():
                print_message(words)
            printed = found.words
        sys.stdout.flush()
        now = time.monotonic()
        due = max(due + seconds, now)
        time.sleep(due - now)


def _print(found: FetchedAnswer, table: Table, output: str) -> None:
    shape = "jsonl" if output == "json" else output
    emit(found.document, shape, table=lambda seen: [*table(found.document, seen), ""])


def _draw(lines: Sequence[str]) -> None:
    rows = os.get_terminal_size(sys.stdout.fileno()).lines
    shown = lines[: max(1, rows - 1)] if rows else lines
    # A single write keeps the screen from flickering.
    sys.stdout.write(_HOME + "".join(f"{line}{_REST_OF_LINE}\n" for line in shown) + _REST)
