"""A real terminal, without a window: a server of tmux with its own socket.

Owns: the start and end of the server, its size, the keys that are typed, what is captured. Must not know: brickd, how a
capture is drawn. Invariants: The server belongs to the context that started it, and no other server of tmux is touched.
A capture is one that two readings in a row agree on, so it is never half drawn.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from pictures.terminal_svg import pieces

_REST_SECONDS = 0.05
# Variables that would change the colours, the sizes, the language, or the server that is used.
_UNSET = ("COLORTERM", "COLUMNS", "FORCE_COLOR", "LC_ALL", "LINES", "NO_COLOR", "TMUX", "TMUX_PANE", "TERM_PROGRAM")
_SETTINGS = """
set -g status off
set -g default-terminal tmux-256color
set -s escape-time 0
set -s exit-empty off
"""


def plain(screen: str) -> str:
    """Return the text of a captured screen."""
    return "\n".join("".join(piece.text for piece in line) for line in pieces(screen))


class TerminalError(Exception):
    """The terminal did not show what it should."""


class Terminal:
    """One window of the server."""

    def __init__(self, server: Server, name: str) -> None:
        self._server, self._name = server, name

    def press(self, *keys: str) -> None:
        """Type keys, with the names that tmux has for them: `Tab`, `Down`, `q`."""
        self._server.run("send-keys", "-t", self._name, *keys)

    def resize(self, columns: int, rows: int) -> None:
        """Change the size."""
        self._server.run("resize-window", "-t", self._name, "-x", str(columns), "-y", str(rows))

    def close(self) -> None:
        """End the program, and remove the window."""
        self._server.run("kill-session", "-t", self._name)

    def coloured(self) -> str:
        """Return the screen with its colours as escape sequences."""
        return self._server.run("capture-pane", "-e", "-N", "-p", "-t", self._name)

    def wait(self, so: Callable[[str], object], what: str, seconds: float) -> str:
        """Return the screen with its colours as soon as its text satisfies `so`.

        Raises:
            TerminalError: it did not within this time, or the program ended.
        """
        by, before = time.monotonic() + seconds, ""
        while True:
            screen = self.coloured()
            text = plain(screen)
            if screen == before and so(text):
                return screen
            before = screen
            if time.monotonic() > by:
                raise TerminalError(f"after {seconds:.0f} s, the screen does not show {what}:\n{text}")
            time.sleep(_REST_SECONDS)


class Server:
    """The server of tmux. Its windows have fixed sizes."""

    def __init__(self, folder: Path) -> None:
        self._command = ("tmux", "-S", str(folder / "socket"), "-f", str(folder / "settings"))
        (folder / "settings").write_text(_SETTINGS)
        self._environment = {name: value for name, value in os.environ.items() if name not in _UNSET}
        self._environment |= {"LANG": "C.UTF-8", "TERM": "xterm-256color"}

    def open(
        self, name: str, columns: int, rows: int, command: Sequence[str], environment: Mapping[str, str] = {}
    ) -> Terminal:
        """Run a command in a window of this size."""
        given = [word for key, value in environment.items() for word in ("-e", f"{key}={value}")]
        size = ("-x", str(columns), "-y", str(rows))
        self.run("new-session", "-d", "-s", name, *size, *given, "--", *command)
        return Terminal(self, name)

    def run(self, *words: str) -> str:
        """Run a command of tmux, and return its output."""
        done = subprocess.run([*self._command, *words], env=self._environment, capture_output=True, check=False)
        if done.returncode:
            raise TerminalError(f"tmux {words[0]}: {done.stderr.decode().strip()} (did the program end?)")
        return done.stdout.decode()

    def end(self) -> None:
        """End the server and the programs in its windows."""
        with contextlib.suppress(TerminalError):
            self.run("kill-server")


@contextlib.contextmanager
def terminals() -> Iterator[Server]:
    """Yield a server without windows, and end it with its programs."""
    with tempfile.TemporaryDirectory(prefix="tmux-") as folder:
        server = Server(Path(folder))
        try:
            yield server
        finally:
            server.end()
