"""The pictures of the documentation: what runs in the terminal, how large it is, and what it must show.

Owns: the table of pictures, the demonstration that they show, what no picture may contain. Must not know: how a
terminal is captured, how a picture is drawn. Invariants: Every picture is of a real run, and the run shows what the
picture is for. No picture has a path, the host's name or the user's name.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import re
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from brickd.demo import processes
from pictures import page_shot
from pictures.terminal import Server, Terminal, TerminalError, plain, terminals
from pictures.terminal_svg import drawn

BRICKD = (sys.executable, "-P", "-m", "brickd")
PATIENCE_SECONDS = 240  # a straggler is found after five looks, ten seconds apart, and later on a busy machine
_EVENTS = 1 << 16
_LEAST_BYTES, _MOST_BYTES = 1_000, 100_000
# Prints the command as it is typed, and waits after it, because a window closes with its program.
_TYPED = 'printf "\\033[1;97m\\$ %s\\033[0m\\n" "$0"; "$@"; read -r _'


class Picture(NamedTuple):
    """A picture.

    Attributes:
        file: its file in docs.
        columns: the columns of the terminal.
        rows: the rows of the terminal.
        verb: the words after `brickd`.
        shows: patterns that the text of the screen must have, each in one line.
        typed: whether the command is shown above its output; the rows that stay empty are cut off.
        keys: the keys that are typed after `shows` is true, and a pattern of the screen after each.
    """

    file: str
    columns: int
    rows: int
    verb: str
    shows: Sequence[str]
    typed: bool = False
    keys: Mapping[str, str] = {}


DAMAGED, WRONG, SLOW = r"! .*weights: demo/1 differs", r"! .*demo/1 differs from the others", r"! .*demo/3 slow since"
# A row of a table of bricks, and a worker with bars of its rate.
BRICK, RATE = r"^mlp\.gate +\w", r"demo/3 .*[▁▂▃▄▅▆▇█]"

PICTURES = (
    Picture("screen.svg", 120, 40, "status", (DAMAGED, WRONG, SLOW, BRICK), typed=True),
    Picture("top.svg", 80, 24, "top", (DAMAGED, WRONG, SLOW, BRICK, RATE)),
    Picture("top-wide.svg", 200, 50, "top", (DAMAGED, WRONG, SLOW, BRICK, RATE)),
)


def satisfied(patterns: Sequence[str]) -> Callable[[str], bool]:
    """Return whether a text has a line for each pattern, as a function of the text."""
    compiled = [re.compile(each, re.MULTILINE) for each in patterns]
    return lambda text: all(each.search(text) for each in compiled)


def leaks(text: str) -> list[str]:
    """Return what a picture must not contain: names of this machine and of its user, and paths."""
    names = {socket.gethostname(), socket.gethostname().partition(".")[0], getpass.getuser(), Path.home().name}
    found = [name for name in sorted(names) if name and re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text)]
    return found + re.findall(r"(?<![\w/.])/[\w.-]+/[\w./-]+", text)


@contextlib.contextmanager
def demonstration() -> Iterator[Server]:
    """Yield terminals next to the running demonstration."""
    with processes.place():
        # so that a daemon that waits for a processor loses no event, which would be a fourth problem on each picture
        os.environ["BRICKD_EVENTS"] = str(_EVENTS)
        with processes.running(), terminals() as server:
            yield server


def opened(server: Server, picture: Picture) -> Terminal:
    """Run the command of a picture in a terminal."""
    shell = ["sh", "-c", _TYPED, f"brickd {picture.verb}"] if picture.typed else []
    command = [*shell, *BRICKD, *picture.verb.split()]
    return server.open(Path(picture.file).stem, picture.columns, picture.rows, command)


def captured(server: Server, picture: Picture, seconds: float = PATIENCE_SECONDS) -> str:
    """Return the screen of a picture, with its colours, as soon as it shows what it must."""
    until = time.monotonic() + seconds
    so = satisfied(picture.shows)
    while True:
        terminal = opened(server, picture)
        try:
            # a command that has ended shows nothing new: it runs again
            screen = terminal.wait(so, " and ".join(picture.shows), 5 if picture.typed else seconds)
            break
        except TerminalError:
            if not picture.typed or time.monotonic() > until:
                raise
        finally:
            if picture.typed:
                terminal.close()
    for key, pattern in picture.keys.items():
        terminal.press(key)
        screen = terminal.wait(satisfied([pattern]), pattern, seconds)
    return screen.rstrip() + "\n" if picture.typed else screen


def made(names: Sequence[str], folder: Path, report: Callable[[str], None]) -> None:
    """Make the pictures with these files, or all, in the folder.

    Raises:
        TerminalError: a screen did not show what it must.
        ValueError: a picture has a name of this machine, or a wrong size.
    """
    with demonstration() as server:
        for picture in PICTURES:
            if names and picture.file not in names:
                continue
            screen = captured(server, picture)
            svg = drawn(screen, picture.columns)
            if found := leaks(plain(screen)):
                raise ValueError(f"{picture.file} has {', '.join(found)}: a picture must not name this machine")
            if not _LEAST_BYTES < len(svg.encode()) < _MOST_BYTES:
                raise ValueError(
                    f"{picture.file} has {len(svg.encode()):,} bytes, not {_LEAST_BYTES:,} to {_MOST_BYTES:,}"
                )
            draft = folder / f"{picture.file}.draft"
            draft.write_text(svg)
            os.replace(draft, folder / picture.file)
            report(f"{picture.file}: {picture.columns}x{picture.rows}, {len(svg.encode()):,} bytes")
        if not names or page_shot.FILE in names:
            if found := leaks(page_shot.made(folder)):
                raise ValueError(f"{page_shot.FILE} has {', '.join(found)}: a picture must not name this machine")
            report(f"{page_shot.FILE}: {(folder / page_shot.FILE).stat().st_size:,} bytes")
