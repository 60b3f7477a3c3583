"""Files that may be segments: found, opened, removed.

Owns: their names, what may be opened and how, who lives in a file and who drains it. Must not know: what is in it.
Invariants: a file is opened without following links or waiting for anybody; nothing is opened twice by a process that
holds a lock on it; what cannot be a segment is `SegmentRefused` with a reason, never an exception of another kind.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import Self

from brickd import _reader
from brickd.errors import NotPermitted, SegmentRefused, SegmentUndrained, SegmentUnopened
from brickd.locks import holder, take

# Which file it is, whatever it is called: device and inode.
Identifier = tuple[int, int]


def prefix() -> str:
    """What the names of segments begin with."""
    return os.environ.get("BRICKD_SHM_PREFIX") or _reader.PREFIX


def find(beginning: str | None = None) -> list[str]:
    """The names of all files that could be segments, in a stable order."""
    beginning = prefix() if beginning is None else beginning
    try:
        return sorted(name for name in os.listdir(_reader.DIRECTORY) if name.startswith(beginning))
    except FileNotFoundError:
        return []


def identifier_of(name: str) -> Identifier | None:
    """Which file has the name now, told without opening it; None: none has."""
    status = _status_of(name)
    return None if status is None else (status.st_dev, status.st_ino)


def owner_of(name: str) -> int | None:
    """Whose file has the name now; None: none has."""
    status = _status_of(name)
    return None if status is None else status.st_uid


def _status_of(name: str) -> os.stat_result | None:
    try:
        return os.stat(os.path.join(_reader.DIRECTORY, name), follow_symlinks=False)
    except (OSError, ValueError):
        return None


class File:
    """An open file that may be a segment: whose it is, who lives in it, its removal."""

    def __init__(self, name: str, fd: int) -> None:
        self.name = name
        self.fd = fd
        status = os.fstat(fd)
        self.identifier = (status.st_dev, status.st_ino)
        self.uid = status.st_uid
        self._ours = False  # to drain: our own lock we are not shown

    @property
    def memory_bytes(self) -> int:
        """What it takes by now: its worker has more of it made as it needs it."""
        return os.fstat(self.fd).st_blocks * 512

    def worker(self) -> int | None:
        """The pid of the process that lives in it, as our namespace sees it (0: not at all); None: it ended."""
        return holder(self.fd, _reader.LOCK_WORKER)

    def consumer(self) -> int | None:
        """The pid of the process that drains it, or None."""
        return holder(self.fd, _reader.LOCK_CONSUMER)

    def consume(self) -> bool:
        """Be the one that drains it, until this process ends or closes it; False: another one is."""
        self._ours = take(self.fd, _reader.LOCK_CONSUMER)
        return self._ours

    def drained(self) -> bool:
        """Whether any process drains it."""
        return self._ours or self.consumer() is not None

    def linked(self) -> bool:
        """Whether it has a name still."""
        return os.fstat(self.fd).st_nlink > 0

    def published(self) -> bool:
        """Whether its worker finished making it."""
        return any(os.pread(self.fd, 8, 0))

    def same_file(self) -> bool:
        """Whether the name still leads to the file that is open here."""
        return identifier_of(self.name) == self.identifier

    def unlink(self) -> bool:
        """Remove the file; False when the name leads elsewhere by now."""
        if not self.same_file():
            return False
        try:
            # Not posix_ipc: it takes no name that is not UTF-8, and anybody may have made one.
            os.unlink(os.path.join(_reader.DIRECTORY, self.name))
        except FileNotFoundError:
            return False
        except PermissionError as error:
            raise NotPermitted(f"{self.name}: belongs to another user; only its owner may remove it") from error
        return True

    def close(self) -> None:
        """Give up the descriptor."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# Errors of whoever opens, not of the file.
_PASSING = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


def opened(name: str, access: int) -> int:
    """A descriptor of it, with the errors of `open_file`."""
    if "/" in name:
        raise SegmentUnopened(name, "cannot be opened: a file's name holds no slash")
    try:
        # Not shm_open: that of glibc waits for the other end of a FIFO, and posix_ipc's crashes on a name with a zero.
        flags = access | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        fd = os.open(os.path.join(_reader.DIRECTORY, name), flags)
    except PermissionError as error:
        raise NotPermitted(f"{name}: belongs to another user") from error
    except FileNotFoundError as error:
        raise SegmentRefused(name, "is gone") from error
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno in _PASSING:
            raise SegmentUndrained(name, f"cannot be opened now: {error.strerror}") from error
        raise SegmentUnopened(name, f"cannot be opened: {error}") from error
    status = os.fstat(fd)
    wrong = None
    if not stat.S_ISREG(status.st_mode):
        wrong = f"not a regular file but {stat.filemode(status.st_mode)}"
    elif status.st_nlink != 1:
        wrong = f"has {status.st_nlink} links, not 1"
    if wrong is not None:
        os.close(fd)
        raise SegmentUnopened(name, wrong)
    return fd


def open_file(name: str) -> File:
    """Open what may be a segment, by its file's name.

    Raises:
        SegmentRefused: it is gone.
        SegmentUnopened: it cannot be one.
        SegmentUndrained: this process can open no more files now.
        NotPermitted: it is another user's.
    """
    return File(name, opened(name, os.O_RDONLY))
