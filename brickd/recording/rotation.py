"""The files of one recording, one after another: F.brick, F.1.brick, F.2.brick.

Owns: the names of the files, when a file is full, which files are kept. Must not know: what the files contain.
Invariants: No existing file is overwritten. The number of kept files is limited, and removed files are counted. A file
is locked as long as its writer lives and is still writing to it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Callable, Iterable
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

from brickd.errors import BrickdError
from brickd.shm import _reader

SUFFIX = ".brick"
# Records may use 7/8 of a file. The rest is for all other data, including the end of the file.
_SPARE = 8


def numbered(first: Path, number: int) -> Path:
    """Return the path of a file of a recording.

    >>> numbered(Path("run.brick"), 0).name, numbered(Path("run.brick"), 2).name
    ('run.brick', 'run.2.brick')
    """
    return first.with_name(f"{first.name.removesuffix(SUFFIX)}.{number}{SUFFIX}") if number else first


class Volume(NamedTuple):
    """One file, and its number in the recording."""

    number: int
    path: Path
    file: _reader.Recording

    def document(self) -> dict[str, Any]:
        """Return the file as JSON."""
        return {
            "path": os.fspath(self.path),
            "number": self.number,
            "bytes": self.file.bytes,
            "chunks": self.file.chunks,
        }


class Put(Enum):
    """The result of a write."""

    DONE = "written"
    NO_ROOM = "the data would exceed the limit of the file; the next file may have room"
    FAILED = "the data cannot be written now"


class Volumes:
    """The files of a recording. The last one is being written.

    Attributes:
        id: the id of the recording, which is the same in all files.
        kept: the files that exist, the oldest first; `removed` counts older files above the limit.
        cut: whether another process truncated the file that is being written. Such a file cannot be continued.
        trouble: why a recent write failed; "" if none failed.
    """

    def __init__(self, first: Path, limit_bytes: int, most: int) -> None:
        """Create the first file; raise BrickdError if it cannot be created."""
        self.id = os.urandom(16)
        self.removed = 0
        self._first, self.limit_bytes, self._most = first, limit_bytes, most
        try:
            self.kept = [self._made(first, 0)]
        except (OSError, ValueError) as error:
            text = f"{first}: cannot be written: {_reason(error)} (use another directory: -o FILE, or BRICKD_STATE_DIR)"
            raise BrickdError(text) from None
        self._made_at = time.monotonic()
        self.cut = False
        self.trouble = ""
        self._failed = False  # whether a write failed after the last call of look()

    def _made(self, path: Path, number: int) -> Volume:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)  # the lock belongs to the open file description, which the writer shares
            limit, spare, now_ns = self.limit_bytes, self.limit_bytes // _SPARE, time.time_ns()
            file = _reader.Recording(fd, limit, id=self.id, number=number, made_ns=now_ns, spare_bytes=spare)
            return Volume(number, path, file)
        except BaseException:
            path.unlink()
            raise
        finally:
            os.close(fd)

    @property
    def file(self) -> _reader.Recording:
        """The file that is being written."""
        return self.kept[-1].file

    @property
    def size(self) -> int:
        """The size of all kept files, in bytes."""
        return sum(each.file.bytes for each in self.kept)

    @property
    def age_seconds(self) -> float:
        """The age of the file that is being written, in seconds."""
        return time.monotonic() - self._made_at

    @property
    def low(self) -> bool:
        """Whether the file that is being written has no more room for records."""
        return self.file.left_bytes < self.limit_bytes // _SPARE

    def look(self) -> None:
        """Clear `trouble` if no write has failed since the last call. Call this after a large write.

        A small write must not clear `trouble`, because a small write may find room where a large one does not.
        """
        if not self._failed:
            self.trouble = ""
        self._failed = False

    def put(self, kind: int, at_ns: int, body: bytes) -> Put:
        """Write a chunk."""
        return self._put(lambda file: file.append(kind, at_ns, body))

    def write(self, spool: _reader.Spool, mark: int) -> Put:
        """Write the content of a spool up to a mark. Data that is not written stays in the spool."""
        return self._put(lambda file: file.write(spool, mark))

    def _put(self, write: Callable[[_reader.Recording], None]) -> Put:
        try:
            write(self.file)
        except OSError as error:
            if error.errno == errno.EFBIG:
                return Put.NO_ROOM
            self.cut = error.errno == errno.ESTALE
            self.fail(_reason(error))
            return Put.FAILED
        return Put.DONE

    def fail(self, why: str) -> None:
        """Note that a write failed, and why it failed."""
        self.trouble, self._failed = why, True

    def next(self) -> bool:
        """Begin a new file while the previous file is still open; return False if it cannot be created."""
        number = self.kept[-1].number + 1
        path = numbered(self._first, number)
        try:
            self.kept.append(self._made(path, number))
        except OSError as error:
            self.fail(f"{path}: {_reason(error)}")
            return False
        self._made_at, self.cut = time.monotonic(), False
        self.trouble, self._failed = "", False
        return True

    def close_last_but_one(self, ending: bytes) -> None:
        """Close the file before the last one, and remove the oldest files above the limit."""
        self._close(self.kept[-2].file, ending)
        while len(self.kept) > self._most:
            oldest = self.kept.pop(0)
            self.removed += 1
            with contextlib.suppress(OSError):
                oldest.path.unlink()

    def end(self, ending: bytes) -> None:
        """Close the last file."""
        self._close(self.file, ending)

    def leave(self) -> None:
        """Close all files without writing anything more.

        This unlocks the files, so that other processes may use them.
        """
        for each in self.kept:
            with contextlib.suppress(OSError):
                each.file.close()

    def undo(self) -> None:
        """Remove the first file, because the recording could not start."""
        self.kept[0].path.unlink(missing_ok=True)

    def _close(self, file: _reader.Recording, ending: bytes) -> None:
        # If there is no room for the end, a reader reports that the file has no end.
        with contextlib.suppress(OSError):
            file.append(_reader.CHUNK_ENDING, time.time_ns(), ending)
        with contextlib.suppress(OSError):
            file.close()


def _reason(error: OSError | ValueError) -> str:
    if isinstance(error, OSError) and error.errno == errno.ESTALE:
        return "another process truncated the file while it was written"
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


MAGIC = b"brickrec"


def parted(words: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Split words into recordings and other words."""
    words = tuple(words)
    recordings = tuple(word for word in words if _is_recording(word))
    return recordings, tuple(word for word in words if word not in recordings)


def _is_recording(word: str) -> bool:
    if word.endswith(SUFFIX):
        return True
    if not os.path.isfile(word):
        return False
    try:
        with open(word, "rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False
