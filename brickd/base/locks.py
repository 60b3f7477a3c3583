"""POSIX locks of single bytes: the kernel knows the holder, in every pid namespace.

Owns: how a lock is taken, its holder, the holder's description. Must not know: the meaning of a byte. Invariant: no
call blocks.
"""

from __future__ import annotations

import fcntl
import os
import struct

_FLOCK = struct.Struct("@hhqqi4x")  # struct flock of 64-bit Linux


def take(fd: int, byte: int) -> bool:
    """Take the lock until this process ends or closes a descriptor of the file; False: not free."""
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, byte, os.SEEK_SET)
    except (BlockingIOError, PermissionError):
        return False
    return True


def holder(fd: int, byte: int) -> int | None:
    """Return the pid of the lock's other holder (0: of another pid namespace); None: free."""
    asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, byte, 1, 0)
    kind, _, _, _, pid = _FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_GETLK, asked))
    return None if kind == fcntl.F_UNLCK else pid


def process(pid: int) -> str:
    """Describe a holder in messages.

    >>> process(7), process(0)
    ('process 7', 'a process of another pid namespace')
    """
    return f"process {pid}" if pid else "a process of another pid namespace"
