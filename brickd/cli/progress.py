"""The display of progress on stderr.

Must not know: the reason for the wait. Invariant: if stderr is not a terminal, nothing is written.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import click

from brickd.base import escape, units
from brickd.views.fetch_answer import Passes, Reads

_STEPS = 20
_PATIENCE_SECONDS = 1.0  # a shorter wait shows no progress
_AGAIN_SECONDS = 0.1
_COLUMNS = 80  # for a terminal that does not report its width


def watch(seconds: float, passes: Passes = time.sleep) -> None:
    """Show progress for `seconds`. `passes` is called to wait for each part of this time; if it returns true, stop."""
    label = f"watching for {seconds:g} s whether a worker moves"
    with click.progressbar(length=_STEPS, label=label, file=sys.stderr, show_eta=False) as bar:
        for _ in range(_STEPS):
            if passes(seconds / _STEPS):
                break
            bar.update(1)


@contextmanager
def reading() -> Iterator[Reads]:
    """Show the progress of reading files if the reading takes long.

    Yields:
        A function that takes the path of a file, the position in the file, and the file's length.
    """
    due = time.monotonic() + _PATIENCE_SECONDS
    shown = False

    def reads(path: str, at: int, of: int) -> None:
        nonlocal due, shown
        if (now := time.monotonic()) >= due:
            due, shown = now + _AGAIN_SECONDS, True
            show(f"reading {path}: {units.size(at)} of {units.size(of)}")

    try:
        yield reads
    finally:
        if shown:
            show("")


def show(line: str) -> None:
    """Replace the last line; "" erases it."""
    if sys.stderr.isatty():
        room = max(1, (os.get_terminal_size(sys.stderr.fileno()).columns or _COLUMNS) - 1)
        sys.stderr.write(f"\r{escape.text(line, room)}\x1b[K")
        sys.stderr.flush()
