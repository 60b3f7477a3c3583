"""`brickd top` on a real terminal: where it writes, and how it leaves the terminal."""

from __future__ import annotations

import base64
import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from faults import Start, until_stopped
from running import BRICKD
from verbs import started

from brickd.cli.top import _moves_cursor

# in a process of its own, because a process learns about one terminal only
MOVES = "import sys; from brickd.cli.top import _moves_cursor; print(_moves_cursor(sys.argv[1]))"
ALTERNATE, NORMAL = b"\x1b[?1049h", b"\x1b[?1049l"


class Terminal:
    """`brickd top` on a pseudo terminal of 24 rows; `seen` is all that it has written."""

    def __init__(self, process: subprocess.Popen[bytes], master: int, slave: int) -> None:
        self.process, self.master, self.slave = process, master, slave
        self.seen = b""

    def until(self, text: bytes) -> bytes:
        """Read until a text has come; forget and return what came before it."""
        while text not in self.seen:
            self.seen += os.read(self.master, 1 << 16)
        before, _, self.seen = self.seen.partition(text)
        return before


@contextmanager
def terminal(**environment: str) -> Iterator[Terminal]:
    """Start `brickd top` on a terminal that sends it no signal, and yield it when it shows a brick."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    process = subprocess.Popen(
        [*BRICKD, "top"], stdin=slave, stdout=slave, stderr=subprocess.DEVNULL, start_new_session=True,
        env=os.environ | {"TERM": "xterm-256color"} | environment,
    )  # fmt: skip
    try:
        of = Terminal(process, master, slave)
        of.until(b"norm  ")
        yield of
    finally:
        process.kill()
        process.wait()
        for file in (of.master, of.slave):
            if file >= 0:
                os.close(file)


@pytest.mark.parametrize("term", ["", "dumb", "unknown"])
def test_a_kind_of_terminal_without_abilities_moves_no_cursor(term: str) -> None:
    assert not _moves_cursor(term)


@pytest.mark.parametrize(
    "term", ["vt52", None, *(pytest.param(each, marks=pytest.mark.ci) for each in ("dumb", "unknown"))]
)
def test_a_terminal_that_cannot_move_its_cursor_is_refused_and_gets_no_escape(term: str | None) -> None:
    master, slave = pty.openpty()
    environment = {key: value for key, value in os.environ.items() if key != "TERM"}
    refused = subprocess.run(
        [*BRICKD, "top"], stdin=slave, stdout=slave, stderr=subprocess.PIPE, check=False, text=True,
        env=environment | ({} if term is None else {"TERM": term}),
    )  # fmt: skip
    os.close(slave)
    with pytest.raises(OSError, match="Input/output error"):  # all that is written is read before the end is reported
        os.read(master, 1)
    os.close(master)
    assert refused.returncode == 2
    assert refused.stderr == (
        f"brickd: {f'TERM is {term!r}' if term else 'TERM is not set'}, expected a terminal that can move its cursor,"
        " such as xterm-256color: use brickd top --batch (see brickd top --help)\n"
    )


@pytest.mark.parametrize(
    "term", ["xterm-256color", pytest.param("vt100", marks=pytest.mark.ci), "a-kind-that-no-machine-knows"]
)
def test_terminals_that_move_their_cursor_are_accepted(term: str) -> None:
    moves = subprocess.run([sys.executable, "-P", "-c", MOVES, term], check=True, capture_output=True, text=True)
    assert moves.stdout == "True\n"


@pytest.mark.ci
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
def test_a_signal_that_ends_the_screen_restores_the_terminal(worker: Start, number: signal.Signals) -> None:
    started(worker, BRICKD_SERVICE="api")
    with terminal(COLUMNS="9") as top:
        assert not termios.tcgetattr(top.slave)[3] & termios.ECHO
        top.process.send_signal(number)
        top.until(NORMAL)
        assert top.process.wait() == 0
        assert termios.tcgetattr(top.slave)[3] & termios.ECHO


@pytest.mark.ci
def test_a_suspended_screen_leaves_the_terminal_and_is_drawn_again_as_a_whole(worker: Start) -> None:
    started(worker, BRICKD_SERVICE="api")
    with terminal() as top:
        os.write(top.master, b"p\x1a")
        top.until(NORMAL)
        until_stopped(top.process.pid)
        shell = termios.tcgetattr(top.slave)
        assert shell[3] & termios.ECHO
        shell[3] &= ~termios.ECHOK
        termios.tcsetattr(top.slave, termios.TCSANOW, shell)
        top.process.send_signal(signal.SIGCONT)
        top.until(ALTERNATE)
        top.until(b"norm  ")
        top.process.send_signal(signal.SIGSTOP)  # which leaves the terminal as it is
        until_stopped(top.process.pid)
        top.process.send_signal(signal.SIGCONT)
        top.until(b"norm  ")
        assert ALTERNATE not in top.seen
        os.write(top.master, b"q")
        assert top.process.wait() == 0
        assert termios.tcgetattr(top.slave) == shell, "what the shell changed during the suspension stays"


@pytest.mark.ci
def test_a_terminal_receives_a_copied_row_and_on_request_the_whole_screen(worker: Start) -> None:
    started(worker, BRICKD_SERVICE="api")
    with terminal() as top:
        os.write(top.master, b"p")
        top.until(b"PAUSED")
        os.write(top.master, b"c")
        top.until(b"\x1b]52;c;")
        copied = base64.b64decode(top.until(b"\a")).decode()
        assert copied.split()[0] in ("norm", "gemm")
        assert b"WORKER" not in top.until(b"copied: "), "only the lines that changed are drawn again"
        os.write(top.master, b"\x0c")
        top.until(b"WORKER")


@pytest.mark.ci
@pytest.mark.parametrize("environment", [{"LANG": "C"}, {"PYTHONIOENCODING": "ascii"}], ids=["LANG", "encoding"])
def test_a_terminal_without_unicode_gets_ascii_only(worker: Start, environment: dict[str, str]) -> None:
    started(worker, BRICKD_SERVICE="api")
    with terminal(**{"LC_ALL": "", "LC_CTYPE": "", "LANG": "C.UTF-8"} | environment) as top:
        os.write(top.master, b"?")
        assert (top.until(b"Up Down, k j") + top.until(b"Left Right")).isascii()
        os.write(top.master, b"q")
        assert top.process.wait() == 0


@pytest.mark.ci
def test_a_closed_terminal_ends_the_screen_even_without_a_signal(worker: Start) -> None:
    started(worker, BRICKD_SERVICE="api")
    with terminal() as top:
        for name in ("slave", "master"):
            os.close(getattr(top, name))
            setattr(top, name, -1)
        assert top.process.wait() == 0


def test_a_terminal_that_has_closed_takes_all_text(tmp_path: Path) -> None:
    from brickd.top.terminal import Output

    closed: list[None] = []
    read, write = os.pipe()
    os.close(read)
    with open(write, "w", encoding="ascii") as file:
        output = Output(file, lambda: closed.append(None))
        output.write("text")
        output.flush()
        assert closed == [None]
        output.write("…")
        output.flush()
        assert (closed, output.fileno()) == ([None], write)
    with open(tmp_path / "of", "w", encoding="latin-1") as file:
        Output(file, pytest.fail).write("a…µ")
    assert (tmp_path / "of").read_bytes() == b"a?\xb5"
