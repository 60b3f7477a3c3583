"""The verb `top`.

Owns: the options of `top`, the messages if textual is not installed or the terminal cannot show a screen. Must not
know: what is on the screen, where documents come from. Invariants: textual is loaded only for a terminal; batches need
nothing but brickd. A terminal that cannot show a screen gets no escape sequence.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING

import click

from brickd.cli.query_options import ParameterType, asks
from brickd.errors import BrickdError
from brickd.query.parameters import Duration
from brickd.query.queries import WorkersQuery
from brickd.screens.screen import screen_of
from brickd.top.state import PANEL_KEYS, State

if TYPE_CHECKING:
    from brickd.top.source import DocumentSource


@click.command()
@asks(WorkersQuery, recorded=True)
@click.option(
    "-p",
    "--panel",
    type=click.Choice(list(PANEL_KEYS)),
    default="bricks",
    show_default=True,
    help="Begin with this panel.",
)
@click.option("-d", "--delay", "seconds", type=ParameterType(Duration(0.1, 3600, "")), default="1s", show_default=True,
              metavar="DURATION", help="Ask again after DURATION.")  # fmt: skip
@click.option("-b", "--batch", is_flag=True, help="Print the screens as text, without keys and colours.")
@click.option("-n", "--count", type=click.IntRange(1), metavar="N", help="With --batch: end after N screens.")
def top(
    *, query: WorkersQuery, recordings: Sequence[str], panel: str, seconds: float, batch: bool, count: int | None
) -> None:
    """Watch workers, bricks and problems live in the terminal.

    Shows services and workers with their rates over the last hour or day, the problems, and a panel: bricks, call tree,
    stragglers, numerics, hang, ledger, history or events. The key ? shows all keys. A time cursor shows an earlier time
    of this machine, or of a recording. Continues when a daemon ends or starts.

    \b
    Examples:
      brickd top
      brickd top api --panel tree
      brickd top night.brick
      brickd top -b -n 3 -d 10s > load.txt
    """  # noqa: D301
    if count is not None and not batch:
        raise click.UsageError("--count needs --batch: add it")
    if not batch:
        _require_terminal()
    from brickd.top import source

    state = State(names=query.names, panel=panel, interval=seconds)
    with source.opened(recordings) as opened:
        if batch:
            _print(opened, state, count)
            return
        _show(opened, state)


def _show(opened: DocumentSource, state: State) -> None:
    from brickd.top.first_screen import FirstScreen

    with FirstScreen(sys.stdin, sys.stdout) as first:  # before all else: until then, the terminal shows typed keys
        from brickd.top.poll import Poller

        poller = Poller(opened, state)
        poller.start()  # while this thread loads what draws
        from brickd.top.characters import is_ascii_only
        from brickd.top.draw import draw
        from brickd.top.panel_rows import Look

        look = Look(colour=not os.environ.get("NO_COLOR"), ascii_only=is_ascii_only(sys.stdout))
        for seconds in (_PATIENCE_SECONDS, _LONG_SECONDS):
            frame = poller.first(seconds)
            first.show(draw(state, frame, first.size, look).lines, colour=look.colour)
            if frame is not None:
                break
        from brickd.top.app import run

        run(poller, state, look, first)


# After the first time, the screen says that it waits. After the second one, it loads textual, so that keys work.
_PATIENCE_SECONDS, _LONG_SECONDS = 0.25, 1.0


def _require_terminal() -> None:
    if not _is_installed():
        raise BrickdError("brickd top needs textual: pip install 'brickd[top]', or use --batch")
    # a shell may start the program with a closed file: Python then has None
    if not all(file is not None and file.isatty() for file in (sys.stdin, sys.stdout)):
        raise click.UsageError("stdin and stdout are not a terminal: use --batch")
    term = os.environ.get("TERM", "")
    if not _moves_cursor(term):
        seen = f"TERM is {term!r}" if term else "TERM is not set"
        raise click.UsageError(
            f"{seen}, expected a terminal that can move its cursor, such as xterm-256color: use brickd top --batch"
        )


def _moves_cursor(term: str) -> bool:
    """Whether this kind of terminal moves its cursor with the sequences that textual writes."""
    import curses

    if term in _PLAIN:
        return False
    try:
        curses.setupterm(term, sys.stdout.fileno())
    except curses.error:  # this machine does not know the terminal; new ones understand the sequences of xterm
        return True
    return (curses.tigetstr("cup") or b"").startswith(b"\x1b[")


_PLAIN = ("", "dumb", "unknown")  # kinds that a machine without a database of terminals does not know, either


def _is_installed() -> bool:
    try:
        return find_spec("textual") is not None
    except ValueError:  # an import of it has failed before
        return False


def _print(opened: DocumentSource, state: State, count: int | None) -> None:
    from brickd.top.batch import screens
    from brickd.top.characters import is_ascii_only
    from brickd.top.panel_rows import Look

    width, look = screen_of(sys.stdout).width, Look(colour=False, ascii_only=is_ascii_only(sys.stdout))
    for number, lines in enumerate(screens(opened, state, count, width, look)):
        sys.stdout.writelines(f"{line}\n" for line in ([""] if number else []) + lines)
        sys.stdout.flush()
