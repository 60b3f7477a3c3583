"""The log of a daemon in the background.

Owns: the file, its bound, and that it is what the process prints to. Must not know: what is written, by whom.
Invariants: there is a log and the one before it, and neither outgrows the bound by more than one write; a log that
cannot be written costs itself alone.
"""

from __future__ import annotations

import contextlib
import io
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Buffer

MOST_BYTES = 1 << 20


def opened(path: Path, most_bytes: int = MOST_BYTES) -> int:
    """The log to go on in: a new one where this one has outgrown its bound."""
    with contextlib.suppress(FileNotFoundError):
        if path.lstat().st_size > most_bytes:
            path.replace(path.with_name(f"{path.name}.1"))
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def printed_to(path: Path) -> io.TextIOWrapper:
    """What is to be the process's stderr, once its descriptors 1 and 2 lead to the log."""
    return io.TextIOWrapper(LogFile(path, (1, 2)), "utf-8", "backslashreplace", write_through=True)


class LogFile(io.RawIOBase):
    """A log that is open already."""

    def __init__(self, path: Path, fds: Sequence[int], most_bytes: int = MOST_BYTES) -> None:
        self.name = os.fspath(path)
        self._path, self._fds, self._most_bytes = path, fds, most_bytes
        self._lock = threading.RLock()  # what is collected in the midst of a write may have something to say, too

    def writable(self) -> bool:
        """It is."""
        return True

    def write(self, text: Buffer) -> int:
        """Write as much of it as can be written: whoever writes has better to do than to hear of it."""
        content = bytes(text)
        with self._lock, contextlib.suppress(OSError):
            room = self._most_bytes - len(content)
            if os.fstat(self._fds[0]).st_size > room:
                self._begin_anew(room)
            os.write(self._fds[0], content)
        return len(content)

    def _begin_anew(self, room: int) -> None:
        try:
            log = opened(self._path, room)
        except OSError:  # its directory is gone, or full
            os.ftruncate(self._fds[0], 0)
            return
        for fd in self._fds:
            os.dup2(log, fd)
        os.close(log)
