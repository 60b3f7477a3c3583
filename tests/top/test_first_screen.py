"""The first screen of `brickd top`: what the terminal shows and keeps until textual takes it."""

from __future__ import annotations

import os
import pty
import signal
import termios
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from faults import Start
from verbs import SPANS, started

from brickd.top.first_screen import ALTERNATE, NORMAL, FirstScreen, size_of
from brickd.top.header import Cells
from brickd.top.lines import line
from brickd.top.poll import Poller
from brickd.top.source import LiveSource
from brickd.top.state import State

SHOWN = [line("brickd top", "title"), line("…norm")]


class Terminal:
    """A pseudo terminal, whose lines end as on a terminal that a shell has set."""

    def __init__(self, stack: ExitStack) -> None:
        self.master, slave = pty.openpty()
        stack.callback(self.close)
        self.file = stack.enter_context(os.fdopen(slave, "w", encoding="utf-8"))

    def close(self) -> None:
        if self.master >= 0:
            os.close(self.master)
            self.master = -1

    def first(self) -> FirstScreen:
        return FirstScreen(self.file, self.file)

    def attributes(self) -> list[object]:
        return termios.tcgetattr(self.file.fileno())

    def seen(self) -> str:
        """Return what the terminal shows since the last call."""
        os.write(self.file.fileno(), b"\0")
        found = b""
        while not found.endswith(b"\0"):
            found += os.read(self.master, 1 << 16)
        return found[:-1].decode()


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    with ExitStack() as stack:
        yield Terminal(stack)


def test_the_lines_are_shown_on_the_alternate_screen_and_the_terminal_is_restored_without_textual(
    terminal: Terminal,
) -> None:
    before = terminal.attributes()
    with terminal.first() as first:
        first.show(SHOWN, colour=True)
        assert terminal.seen() == (
            f"{ALTERNATE}\x1b[?25l\x1b[H\x1b[2J\x1b[1;1H\x1b[0;1;7mbrickd top\x1b[0m\x1b[2;1H\x1b[0m…norm\x1b[0m"
        )
    assert terminal.seen() == f"{NORMAL}\x1b[?25h"
    assert terminal.attributes() == before


def test_a_screen_that_was_handed_over_is_not_left_twice(terminal: Terminal) -> None:
    before = terminal.attributes()
    with terminal.first() as first:
        first.show(SHOWN, colour=False)
        assert (first.hand_over(), first.hand_over()) == (True, False)
        terminal.seen()
    assert terminal.seen() == ""
    assert terminal.attributes() == before == first.attributes


def test_a_second_screen_replaces_the_first_one_and_opens_nothing_again(terminal: Terminal) -> None:
    with terminal.first() as first:
        first.show([line("waiting for the first answer")], colour=False)
        assert terminal.seen().startswith(ALTERNATE)
        first.show(SHOWN[:1], colour=False)
        assert terminal.seen() == "\x1b[H\x1b[2J\x1b[1;1H\x1b[0;1;7mbrickd top\x1b[0m"


def test_keys_wait_for_textual_as_they_were_pressed_and_are_not_shown(terminal: Terminal) -> None:
    with terminal.first():
        os.write(terminal.master, b"q\r\x03\x1a\x13")
        assert os.read(terminal.file.fileno(), 9) == b"q\r\x03\x1a\x13"
        assert terminal.seen() == ""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
def test_a_signal_ends_the_first_screen_and_restores_the_terminal(terminal: Terminal, number: signal.Signals) -> None:
    others, before = signal.signal(number, signal.SIG_DFL), terminal.attributes()

    def show() -> None:
        with terminal.first() as first:
            first.show(SHOWN, colour=True)
            os.kill(os.getpid(), number)

    with pytest.raises(SystemExit) as ended:
        show()
    assert ended.value.code == 0
    assert terminal.seen().endswith(f"{NORMAL}\x1b[?25h")
    assert (signal.signal(number, others), terminal.attributes()) == (signal.SIG_DFL, before)


def test_a_signal_that_nohup_ignores_stays_ignored(terminal: Terminal) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with terminal.first():
            os.kill(os.getpid(), signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def _echoes(*change: bool) -> bool:
    """Return whether the controlling terminal shows what is typed, after a change of this."""
    attributes = termios.tcgetattr(0)
    for on in change:
        attributes[3] = attributes[3] | termios.ECHO if on else attributes[3] & ~termios.ECHO
        termios.tcsetattr(0, termios.TCSANOW, attributes)
    return bool(attributes[3] & termios.ECHO)


def _run_in_background_then_in_foreground() -> bool:
    """Act as a shell that edits its line and starts a program; return whether the terminal then echoes again."""
    _echoes(False)
    if (program := os.fork()) == 0:
        os.setpgid(0, 0)
        with os.fdopen(0, "w", closefd=False) as file, FirstScreen(file, file):
            shows_keys = _echoes()
        os._exit(shows_keys)
    _, status = os.waitpid(program, os.WUNTRACED)
    is_stopped = os.WIFSTOPPED(status)
    _echoes(True)
    os.tcsetpgrp(0, program)
    os.kill(program, signal.SIGCONT)
    return is_stopped and os.waitpid(program, 0)[1] == 0 and _echoes()


def test_a_program_that_comes_from_the_background_restores_the_terminal_of_the_foreground() -> None:
    shell, master = pty.fork()
    if shell == 0:
        os._exit(0 if _run_in_background_then_in_foreground() else 1)
    assert os.waitpid(shell, 0)[1] == 0
    os.close(master)


def test_a_terminal_that_has_closed_is_no_error(terminal: Terminal) -> None:
    with terminal.first() as first:
        terminal.close()
        first.show(SHOWN, colour=True)
    assert size_of(os.open(os.devnull, os.O_RDONLY)) == Cells(80, 24)


def test_a_character_that_the_terminal_does_not_have_is_a_question_mark(terminal: Terminal) -> None:
    with os.fdopen(os.dup(terminal.file.fileno()), "w", encoding="ascii") as file, FirstScreen(file, file) as first:
        first.show(SHOWN, colour=True)
        assert "?norm" in terminal.seen()


def test_the_first_frame_is_there_for_the_first_screen_and_for_textual(worker: Start) -> None:
    started(worker, SPANS, BRICKD_SERVICE="api")
    poller = Poller(LiveSource(), State(interval=3600.0))
    assert poller.first(0) is None
    poller.start()
    frame = poller.first(60)
    assert frame is not None
    assert frame.panel.document is not None
    assert poller.first(0) is frame
    sent: list[object] = []
    poller.send_to(sent.append)
    poller.end()
    assert sent == [frame]
