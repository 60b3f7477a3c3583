"""The first screen, which the terminal shows while textual is loaded.

Owns: the terminal until textual takes it, the size of a terminal, the escape sequences of a line. Must not know: how a
screen is drawn, textual. Invariants: Loading textual takes longer than the first answer, so the answer does not wait
for it. Keys that are pressed meanwhile wait for textual, and the terminal does not show them. If textual never takes
the terminal, the terminal is restored as it was.
"""

from __future__ import annotations

import os
import signal
import termios
from collections.abc import Sequence
from contextlib import suppress
from types import FrameType
from typing import Any, TextIO

from brickd.top.header import Cells
from brickd.top.lines import LOOKS, Line, StyledText

ENDING = (signal.SIGTERM, signal.SIGHUP)  # the signals that end the screen
ALTERNATE, NORMAL = "\x1b[?1049h", "\x1b[?1049l"
_HIDE_CURSOR, _SHOW_CURSOR, _CLEAR = "\x1b[?25l", "\x1b[?25h", "\x1b[H\x1b[2J"
_CODES = {"bold": "1", "dim": "2", "reverse": "7", "red": "31", "green": "32", "yellow": "33"}
_COLOURS = ("red", "green", "yellow")
_IFLAG, _LFLAG, _CC = 0, 3, 6  # indices in the attributes of a terminal


def size_of(file: int) -> Cells:
    """Return the size of the terminal itself: COLUMNS may be from another terminal, or from before a resize."""
    try:
        size = os.get_terminal_size(file)
    except OSError:
        return Cells(80, 24)
    return Cells(size.columns or 80, size.lines or 24)  # a serial console reports 0 if it does not know its size


def escaped(of: Sequence[Line], *, colour: bool) -> str:
    r"""Return the text that draws lines from the top of the terminal.

    >>> escaped([(StyledText("! lost", "red"),), (StyledText("norm"),)], colour=True)
    '\x1b[1;1H\x1b[0;1;31m! lost\x1b[0m\x1b[2;1H\x1b[0mnorm\x1b[0m'
    >>> escaped([(StyledText("! lost", "red"),)], colour=False)
    '\x1b[1;1H\x1b[0;1m! lost\x1b[0m'
    """

    def codes(span: StyledText) -> str:
        words = [word for word in LOOKS[span.style].split() if colour or word not in _COLOURS]
        return ";".join(["0", *(_CODES[word] for word in words)])

    return "".join(
        f"\x1b[{row};1H{''.join(f'{chr(27)}[{codes(span)}m{span.text}' for span in line)}\x1b[0m"
        for row, line in enumerate(of, 1)
    )


class FirstScreen:
    """The terminal until textual takes it: a context."""

    def __init__(self, keys: TextIO, output: TextIO) -> None:
        """Take the files from which keys come, and to which the screen goes."""
        self._keys, self._output = keys, output
        self.attributes: list[Any] = []  # those that the terminal had before; [] if it has closed
        self.is_shown = False
        self._handlers: dict[signal.Signals, Any] = {}

    @property
    def size(self) -> Cells:
        """The size of the terminal."""
        return size_of(self._output.fileno())

    def __enter__(self) -> FirstScreen:
        """Take the terminal, and the signals that end the program."""
        with suppress(termios.error):
            # In the background, this stops the program, as any change does. There, the attributes are the shell's own.
            termios.tcflow(self._keys.fileno(), termios.TCOON)
            self.attributes = termios.tcgetattr(self._keys.fileno())
        self._handlers = {each: signal.getsignal(each) for each in ENDING}
        for each, before in self._handlers.items():
            if before is not signal.SIG_IGN:  # as under nohup
                signal.signal(each, _end)
        if self.attributes:
            keys = [*self.attributes[:_CC], [*self.attributes[_CC]]]
            keys[_IFLAG] &= ~(termios.ICRNL | termios.INLCR | termios.IGNCR | termios.IXON | termios.IXOFF)
            keys[_LFLAG] &= ~(termios.ECHO | termios.ICANON | termios.IEXTEN | termios.ISIG)
            keys[_CC][termios.VMIN], keys[_CC][termios.VTIME] = 1, 0
            self._set(keys)
        return self

    def show(self, of: Sequence[Line], *, colour: bool) -> None:
        """Show the lines of a screen, with colours or without."""
        opened = "" if self.is_shown else ALTERNATE + _HIDE_CURSOR
        self.is_shown = True
        self._write(opened + _CLEAR + escaped(of, colour=colour))

    def hand_over(self) -> bool:
        """Leave the terminal to textual; return whether it shows the alternate screen."""
        shown, self.is_shown = self.is_shown, False
        return shown

    def __exit__(self, *_: object) -> None:
        """Restore the terminal, if it was not handed over; textual restores it otherwise."""
        if self.is_shown:
            self._write(NORMAL + _SHOW_CURSOR)
        self._set(self.attributes)
        for each, before in self._handlers.items():
            signal.signal(each, before)

    def _set(self, attributes: list[Any]) -> None:
        if attributes:
            with suppress(termios.error):  # the terminal has closed
                termios.tcsetattr(self._keys.fileno(), termios.TCSANOW, attributes)

    def _write(self, text: str) -> None:
        left = text.encode(self._output.encoding, "replace")
        with suppress(OSError):  # the terminal has closed: textual finds this out, and ends
            while left:  # a file object would keep what it cannot write, and try again at the end of the program
                left = left[os.write(self._output.fileno(), left) :]


def _end(number: int, frame: FrameType | None) -> None:
    """End the program: the context then restores the terminal."""
    raise SystemExit(0)
