"""Files that may be segments. This module finds, opens and removes them.

Owns: the names of the files, which files may be opened and how, which process owns a file, which process drains it.
Must not know: the content of files. Invariants: A process opens only files of its own effective user, even as root.
Opening follows no link and waits for no process. A process never opens a file twice while it holds a lock on the file.
A file that cannot be a segment raises `SegmentRefused` with a reason, never another exception. A file with a name that
no worker writes is refused before it is opened, so it is never removed.

posix_ipc removes segments, because its shm_unlink is the counterpart of the agent's shm_open. posix_ipc does not open
segments, because its shm_open has no O_NONBLOCK and would wait for the other end of a FIFO. Semaphores of posix_ipc
cannot lock a worker, because they stay locked when a process is killed.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple, Self

import posix_ipc

from brickd.base.files import holder, take
from brickd.base.users import as_user, user_name
from brickd.errors import BrickdError, NoDescriptor, NotPermitted, SegmentRefused, SegmentUndrained, SegmentUnopened
from brickd.shm import _reader

# The identity of a file, which does not depend on its name: device and inode.
Identifier = tuple[int, int]

# The characters allowed after the prefix; a worker uses hexadecimal digits. So a name is always text without a slash.
_BEHIND_PREFIX = re.compile(r"[A-Za-z0-9._-]*")


PREFIX_BYTES_MAX = 39  # the agent has the same limit


def is_prefix(text: str) -> bool:
    """Whether the names of segments may begin with this text.

    >>> is_prefix("brickd-"), is_prefix("a/b"), is_prefix("é" * 19), is_prefix("é" * 20)
    (True, False, True, False)
    """
    return "/" not in text and len(os.fsencode(text)) <= PREFIX_BYTES_MAX


def prefix() -> str:
    """Return the prefix of segments' names; raise a BrickdError if it is not text or cannot begin a name."""
    given = os.environ.get("BRICKD_SHM_PREFIX") or _reader.PREFIX
    try:
        given.encode()
    except UnicodeEncodeError:
        raise BrickdError(f"BRICKD_SHM_PREFIX is {os.fsencode(given)!r}, expected UTF-8") from None
    if not is_prefix(given):
        raise BrickdError(f"BRICKD_SHM_PREFIX is {given!r}, expected at most {PREFIX_BYTES_MAX} bytes without a slash")
    return given


# The owners of other users' files, by name and inode, so that the owner of a known file is not looked up again. The
# inode alone is not enough: if /dev/shm is not a tmpfs, a new file may get the inode of a removed one.
Owners = Mapping[tuple[str, int], int]
NO_OWNERS: Owners = MappingProxyType({})


class Listing(NamedTuple):
    """The files named like segments: the sorted names of this user's files, and the owners of all other files."""

    own: list[str]
    others: Owners

    def counts(self) -> dict[int, int]:
        """The number of files of each other user."""
        return dict(Counter(self.others.values()))


def listing(beginning: str | None = None, known: Owners = NO_OWNERS) -> Listing:
    """List all files with a prefix, by default the configured one. Owners in `known` are not looked up again."""
    beginning = prefix() if beginning is None else beginning
    own: list[str] = []
    others: dict[tuple[str, int], int] = {}
    try:
        with os.scandir(_reader.DIRECTORY) as entries:
            for entry in entries:
                if not entry.name.startswith(beginning) or _reader.is_removed(entry.name):
                    continue
                file = entry.name, entry.inode()
                owner = known.get(file)
                if owner is None:
                    try:
                        owner = entry.stat(follow_symlinks=False).st_uid
                    except FileNotFoundError:  # it was removed after it was listed
                        continue
                if owner == os.geteuid():
                    own.append(entry.name)
                else:
                    others[file] = owner
    except FileNotFoundError:
        pass
    return Listing(sorted(own), others)


def find(beginning: str | None = None) -> list[str]:
    """Return the names of this user's files that may be segments, sorted."""
    return listing(beginning).own


def identifier_of(name: str) -> Identifier | None:
    """Return the identity of the file with this name, without opening the file; None if there is no such file."""
    status = _status_of(name)
    return None if status is None else (status.st_dev, status.st_ino)


def committed(name: str) -> int:
    """Return how many bytes the file with this name takes; 0 if there is no such file."""
    status = _status_of(name)
    return 0 if status is None else status.st_blocks * 512


def _status_of(name: str) -> os.stat_result | None:
    try:
        return os.stat(os.path.join(_reader.DIRECTORY, name), follow_symlinks=False)
    except (OSError, ValueError):
        return None


class SegmentFile:
    """An open file that may be a segment: its owner, its worker, its removal."""

    def __init__(self, name: str, fd: int) -> None:
        self.name = name
        self.fd = fd
        status = os.fstat(fd)
        self.identifier = (status.st_dev, status.st_ino)
        self.uid = status.st_uid
        # Whether this process drains the file. The kernel does not report the locks of the process that asks.
        self._ours = False

    @property
    def memory_bytes(self) -> int:
        """Return how many bytes the file takes now; a segment grows with use."""
        return os.fstat(self.fd).st_blocks * 512

    def worker(self) -> int | None:
        """Return the pid of the worker's process (0: in another pid namespace); None if the process has ended."""
        return holder(self.fd, _reader.LOCK_WORKER)

    def consumer(self) -> int | None:
        """Return the pid of the process that drains the file, or None."""
        return holder(self.fd, _reader.LOCK_CONSUMER)

    def consume(self) -> bool:
        """Take the lock that allows draining the file, and hold it until the file is closed.

        Return False if another process holds the lock.
        """
        self._ours = take(self.fd, _reader.LOCK_CONSUMER)
        return self._ours

    def drained(self) -> bool:
        """Whether a process drains the file."""
        return self._ours or self.consumer() is not None

    def linked(self) -> bool:
        """Whether the file still has a name."""
        return os.fstat(self.fd).st_nlink > 0

    def published(self) -> bool:
        """Whether the worker has finished creating the file."""
        return any(os.pread(self.fd, 8, 0))

    def same_file(self) -> bool:
        """Whether the file's name still belongs to this open file."""
        return identifier_of(self.name) == self.identifier

    def unlink(self) -> bool:
        """Remove the file; return False if its name was removed or now belongs to another file."""
        if not self.same_file():
            return False
        try:
            posix_ipc.unlink_shared_memory(self.name)
        except posix_ipc.ExistentialError:
            return False
        except posix_ipc.PermissionsError as error:
            why = f"{os.strerror(errno.EACCES)} (run brickd as the file's owner)"
            raise NotPermitted(f"{self.name}: cannot be removed: {why}") from error
        return True

    def close(self) -> None:
        """Close the descriptor."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


EXHAUSTED = (errno.EMFILE, errno.ENFILE)  # no file descriptor is left, so the file is not at fault


def opened(name: str, access: int) -> int:
    """Open a descriptor; raise the same errors as `open_file`."""
    if not _BEHIND_PREFIX.fullmatch(name.removeprefix(prefix())):
        reason = (
            "cannot be opened: after the prefix, its name has characters other than letters, digits, '.', '_' and '-'"
        )
        raise SegmentUnopened(name, reason)
    try:
        flags = access | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        fd = os.open(os.path.join(_reader.DIRECTORY, name), flags)
    except PermissionError as error:
        raise NotPermitted(f"{name}: cannot be opened: {error.strerror} (check its owner and mode)") from error
    except FileNotFoundError as error:
        raise SegmentRefused(name, "no longer exists") from error
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno in (*EXHAUSTED, errno.ENOMEM):
            kind = NoDescriptor if error.errno in EXHAUSTED else SegmentUndrained
            raise kind(name, f"cannot be opened now: {error.strerror}") from error
        raise SegmentUnopened(name, f"cannot be opened: {error}") from error
    status = os.fstat(fd)
    if status.st_uid != os.geteuid():
        os.close(fd)
        raise NotPermitted(
            f"{name}: belongs to user {user_name(status.st_uid)}; brickd reads only the segments of user"
            f" {user_name(os.geteuid())} ({as_user(status.st_uid, 'inspect', name)})"
        )
    # A file with a second link is accepted, because on some systems other users can link to this user's files.
    if not stat.S_ISREG(status.st_mode):
        os.close(fd)
        raise SegmentUnopened(name, f"has mode {stat.filemode(status.st_mode)}, expected a regular file")
    return fd


def open_file(name: str) -> SegmentFile:
    """Open a file that may be a segment, by its name.

    Raises:
        SegmentRefused: the file no longer exists.
        SegmentUnopened: the file cannot be a segment.
        SegmentUndrained: this process can open no more files now.
        NotPermitted: the file belongs to another user, or its mode refuses access.
    """
    return SegmentFile(name, opened(name, os.O_RDONLY))
