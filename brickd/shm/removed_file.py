"""The file of records of removed segments, one per user (`brick_removed.h`).

Owns: which file is trusted, how the file is read and truncated. Must not know: the use of the records. Invariants: A
file that another user owns or may access is refused. A reader waits for no lock and uses at most 2 MiB. The file is
truncated only if its content is exactly what the caller has saved.
"""

from __future__ import annotations

import fcntl
import os
import stat
import struct
from typing import NamedTuple

from brickd.shm import _reader
from brickd.shm.removed_workers import RemovedWorker

_WHOLE_FILE = struct.pack("@hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)  # struct flock of 64-bit Linux
_BYTES_MAX = _reader.REMOVED_READ_MAX * _reader.REMOVED_BYTES


class RemovedRecords(NamedTuple):
    """The content of the file, its records, and the number of damaged records.

    `refused` tells why the file is not trusted; "" if it is trusted.
    """

    content: bytes = b""
    removed: tuple[RemovedWorker, ...] = ()
    damaged: int = 0
    refused: str = ""

    @property
    def full(self) -> bool:
        """Whether the file has no room for another record."""
        return len(self.content) >= _reader.REMOVED_MAX * _reader.REMOVED_BYTES


def path(prefix: str) -> str:
    """Return the path of this user's file."""
    return os.path.join(_reader.DIRECTORY, f"{prefix}{_reader.REMOVED_NAME}{os.geteuid()}")


def look(prefix: str) -> RemovedRecords:
    """Read the file."""
    try:
        fd = os.open(path(prefix), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return RemovedRecords()
    except OSError as error:
        return RemovedRecords(refused=f"cannot be opened: {error.strerror}")
    try:
        if wrong := _wrong(os.fstat(fd)):
            return RemovedRecords(refused=wrong)
        return _found(os.pread(fd, _BYTES_MAX, 0))
    except OSError as error:
        return RemovedRecords(refused=f"cannot be read: {error.strerror}")
    finally:
        os.close(fd)


def truncate(prefix: str, content: bytes) -> bool:
    """Truncate the file if it has exactly this content and no process appends to it now."""
    try:
        fd = os.open(path(prefix), os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _WHOLE_FILE)
        if _wrong(os.fstat(fd)) or os.pread(fd, _BYTES_MAX, 0) != content:
            return False
        os.ftruncate(fd, 0)
    except OSError:  # a process appends, or the file cannot be changed; the caller tries again later
        return False
    finally:
        os.close(fd)
    return True


def _wrong(status: os.stat_result) -> str:
    """Return why the file is not trusted; "" if it is trusted."""
    mode = stat.filemode(status.st_mode)
    if not stat.S_ISREG(status.st_mode):
        return f"not a regular file but {mode}"
    if status.st_nlink != 1:
        return f"has {status.st_nlink} links, expected 1"
    if status.st_uid != os.geteuid() or status.st_mode & 0o077:
        return f"{mode} of user {status.st_uid}, expected -rw------- of user {os.geteuid()}"
    if status.st_size > _BYTES_MAX:
        return f"{status.st_size:,} bytes, expected at most {_BYTES_MAX:,}"
    return ""


def _found(content: bytes) -> RemovedRecords:
    records = _reader.removed(content)
    removed = tuple(RemovedWorker.of(record) for record in records if record is not None)
    return RemovedRecords(content, removed, damaged=len(records) - len(removed))
