"""The terminal of the screen: where it is written, and how it is left.

Owns: the file that is written, its encoding, the signals that end or stop the program. Must not know: documents, the
screen's lines, keys. Invariants: The screen goes to stdout, so that stderr can be redirected. Every signal that ends
the program restores the terminal first. A terminal that has closed ends the program, and never blocks it.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any, TextIO

from textual.app import App
from textual.drivers.linux_driver import LinuxDriver

from brickd.top.first_screen import ALTERNATE, ENDING, FirstScreen, size_of


class Output:
    """A terminal that may close while it is written. What is written later is dropped."""

    def __init__(self, file: TextIO, closed: Callable[[], None]) -> None:
        """Take a file. `closed` is called when its terminal has closed, in the thread that writes."""
        self._file, self._closed = file, closed

    def write(self, text: str) -> None:
        """Write text. A character that the terminal's encoding does not have becomes a question mark."""
        encoding = self._file.encoding
        self._try(lambda: self._file.write(text.encode(encoding, "replace").decode(encoding)))

    def flush(self) -> None:
        """Send the text to the terminal."""
        self._try(self._file.flush)

    def fileno(self) -> int:
        """Return the file descriptor."""
        return self._file.fileno()

    def _try(self, act: Callable[[], object]) -> None:
        try:
            act()
        except OSError:
            # The file keeps the text that it could not write. Python flushes it at its end, and must not fail then.
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, self._file.fileno())
            os.close(null)
            self._closed()


class Terminal(LinuxDriver):
    """textual's driver, but it writes to stdout, and handles the signals that end a program."""

    def __init__(self, app: App[Any], *, debug: bool = False, mouse: bool = True, size: tuple[int, int] | None = None):
        """Take over the terminal of stdin and stdout."""
        super().__init__(app, debug=debug, mouse=mouse, size=size)
        assert sys.__stdout__ is not None
        self._file: Any = Output(sys.__stdout__, self._end_soon)
        self._is_alternate = False  # whether the first screen is shown

    def start_application_mode(self) -> None:
        """Show the screen, and take the signals that end the program."""
        for number in ENDING:
            if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
                self._loop.add_signal_handler(number, self._app.exit)
        first: FirstScreen | None = getattr(self._app, "first", None)
        self._is_alternate = begins = first is not None and first.hand_over()
        super().start_application_mode()  # type: ignore[no-untyped-call]
        if first is None:
            return
        if begins and first.attributes:
            self.attrs_before = first.attributes
        elif self.attrs_before is not None:  # after a suspension: the operator may have changed the terminal
            first.attributes = self.attrs_before

    def write(self, data: str) -> None:
        """Write text. The alternate screen that is already shown stays: opening it again would clear it."""
        if self._is_alternate and data == ALTERNATE:
            self._is_alternate = False
            return
        super().write(data)

    def _sigcont_application(self, *_: object) -> None:
        """Continue. No program can handle SIGSTOP, so the terminal was not restored, and may now show other text."""
        if self._must_signal_resume:
            super()._sigcont_application()
        else:
            self._loop.call_soon_threadsafe(self._app.post_message, self.SignalResume())

    def _end_soon(self) -> None:
        self._loop.call_soon_threadsafe(self._app.exit)

    def _get_terminal_size(self) -> tuple[int, int]:
        size = size_of(self._file.fileno())
        return size.width, size.height or 24
