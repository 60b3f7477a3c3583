"""The log file of a daemon that runs in the background.

Owns: the file, its limit, the redirection of the process's output. Must not know: what is logged. Invariants: There are
at most two files, the current log and the previous one. A file exceeds the limit by at most one write. If the log
cannot be written, the daemon continues without it.
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
    """Open the log. If the old file exceeds the limit, start a new one."""
    with contextlib.suppress(FileNotFoundError):
        if path.lstat().st_size > most_bytes:
            path.replace(path.with_name(f"{path.name}.1"))
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def printed_to(path: Path) -> io.TextIOWrapper:
    """Return a stderr for a process whose descriptors 1 and 2 are the log."""
    return io.TextIOWrapper(LogFile(path, (1, 2)), "utf-8", "backslashreplace", write_through=True)


class LogFile(io.RawIOBase):
    """A log that is already open."""

    def __init__(self, path: Path, fds: Sequence[int], most_bytes: int = MOST_BYTES) -> None:
        self.name = os.fspath(path)
        self._path, self._fds, self._most_bytes = path, fds, most_bytes
        self._lock = threading.RLock()  # reentrant, because garbage collection during a write may write too

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, text: Buffer) -> int:
        """Write as much as possible. The caller never gets an error."""
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
        except OSError:  # the directory was removed, or the disk is full
            os.ftruncate(self._fds[0], 0)
            return
        for fd in self._fds:
            os.dup2(log, fd)
        os.close(log)
