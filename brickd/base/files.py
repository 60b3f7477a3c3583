"""Reads small files whole, such as those of the kernel, and locks single bytes.

Owns: how such a file is read; how a lock is taken, who holds a lock, how the holder is described. Must not know: the
meaning of a file or a byte. Invariants: For a missing or unreadable file, the result is None and not an error. No call
blocks. The kernel knows the holder of a lock, whatever its pid namespace is.
"""

from __future__ import annotations

import fcntl
import os
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path  # not at run time, because it takes 3 ms and a shell's completion does not need it

_FLOCK = struct.Struct("@hhqqi4x")  # struct flock of 64-bit Linux


def read(path: Path, most: int = 1 << 16) -> str | None:
    """Read the text of a file, at most `most` bytes of it."""
    try:
        with path.open("rb") as file:
            return file.read(most).decode("utf-8", "replace")
    except OSError:
        return None


def number(path: Path) -> int | None:
    """Read a file that contains only a number."""
    text = (read(path) or "").strip()
    return int(text) if text.isascii() and text.isdigit() else None


def take(fd: int, byte: int) -> bool:
    """Take the lock until this process ends or closes any descriptor of the file; False if another process has it."""
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, byte, os.SEEK_SET)
    except (BlockingIOError, PermissionError):
        return False
    return True


def holder(fd: int, byte: int) -> int | None:
    """Return the pid of another process that holds the lock (0: in another pid namespace); None if the lock is free."""
    asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, byte, 1, 0)
    kind, _, _, _, pid = _FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_GETLK, asked))
    return None if kind == fcntl.F_UNLCK else pid


def process(pid: int) -> str:
    """Describe the holder of a lock for a message.

    >>> process(7), process(0)
    ('process 7', 'a process of another pid namespace')
    """
    return f"process {pid}" if pid else "a process of another pid namespace"
