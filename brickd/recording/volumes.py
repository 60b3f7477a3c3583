"""The files of one recording, one after another: F.brick, F.1.brick, F.2.brick.

Owns: their names, when one is full, which are kept. Must not know: what is written. Invariants: no file that was there
is written over; what is kept is limited, and what was removed is counted; a file is locked as long as it is written and
its writer lives.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from pathlib import Path
from typing import Any, NamedTuple

from brickd import _reader
from brickd.errors import BrickdError

SUFFIX = ".brick"
# A file is left with this part of its room, for the records that come until the next one is made.
_SPARE = 8


def numbered(first: Path, number: int) -> Path:
    """What a file of a set is called.

    >>> numbered(Path("run.brick"), 0).name, numbered(Path("run.brick"), 2).name
    ('run.brick', 'run.2.brick')
    """
    return first.with_name(f"{first.name.removesuffix(SUFFIX)}.{number}{SUFFIX}") if number else first


class Volume(NamedTuple):
    """One file, and its number in the set."""

    number: int
    path: Path
    file: _reader.Recording

    def document(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "path": os.fspath(self.path),
            "number": self.number,
            "bytes": self.file.bytes,
            "chunks": self.file.chunks,
        }


class Volumes:
    """The files, of which the last one is written.

    Attributes:
        id: the recording's, the same in all of them.
        kept: those that are there, the oldest first.
        removed: how many were, the oldest, because there were too many.
    """

    def __init__(self, first: Path, limit_bytes: int, most: int) -> None:
        """Make the first one.

        Raises:
            BrickdError: it cannot be made.
        """
        self.id = os.urandom(16)
        self.removed = 0
        self._first, self._limit_bytes, self._most = first, limit_bytes, most
        try:
            self.kept = [self._made(first, 0)]
        except (OSError, ValueError) as error:
            raise BrickdError(f"{first}: {_reason(error)}: nothing can be recorded there") from None
        self._made_at = time.monotonic()
        self._refused_slots = 0
        self._outgrown = False
        self._trouble = ""
        self._seen = self._over = (0, 0)  # what the file had refused at the last look; what of it is over

    def _made(self, path: Path, number: int) -> Volume:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)  # by the description, which is the writer's from here on
            limit, now_ns = self._limit_bytes, time.time_ns()
            return Volume(number, path, _reader.Recording(fd, limit, id=self.id, number=number, made_ns=now_ns))
        except BaseException:
            path.unlink()
            raise
        finally:
            os.close(fd)

    @property
    def file(self) -> _reader.Recording:
        """The one that is written."""
        return self.kept[-1].file

    @property
    def size(self) -> int:
        """All that is kept."""
        return sum(each.file.bytes for each in self.kept)

    @property
    def age_seconds(self) -> float:
        """Of the file that is written."""
        return time.monotonic() - self._made_at

    @property
    def full(self) -> bool:
        """Whether it is time for the next file."""
        return self._outgrown or self.file.left_bytes < self._limit_bytes // _SPARE

    @property
    def trouble(self) -> str:
        """Why something could not be written of late, or ""."""
        return self._trouble or (self.file.trouble if self._refused() != self._over else "")

    def _refused(self) -> tuple[int, int]:
        return self.file.refused_chunks, self.file.refused_slots

    def look(self) -> None:
        """Something large has been written: what was in the way is over where nothing was refused since the last look.

        Not before: where there is little room a small thing finds some when a large one does not.
        """
        before, self._seen = self._seen, self._refused()
        if self._seen == before:
            self._over = before

    @property
    def refused_slots(self) -> int:
        """Of the rings, for which there was no room."""
        return self._refused_slots + sum(each.file.refused_slots for each in self.kept)

    def put(self, kind: int, at_ns: int, body: bytes) -> bool:
        """Write a chunk; whether there was room for it."""
        try:
            self.file.append(kind, at_ns, body)
        except OSError as error:
            self._outgrown = self._outgrown or error.errno == errno.EFBIG
            return False
        except ValueError:  # too long for any file
            return False
        return True

    def next(self) -> bool:
        """Make the next file, and write that from now on; the one before it stays open. Whether it could be made."""
        number = self.kept[-1].number + 1
        path = numbered(self._first, number)
        try:
            self.kept.append(self._made(path, number))
        except OSError as error:
            self._trouble = f"{path}: {_reason(error)}"
            return False
        self._made_at, self._outgrown, self._trouble = time.monotonic(), False, ""
        self._seen = self._over = (0, 0)
        return True

    def close_last_but_one(self, ending: bytes) -> None:
        """Nobody writes that any more; what is too old is removed."""
        self._close(self.kept[-2].file, ending)
        while len(self.kept) > self._most:
            oldest = self.kept.pop(0)
            self._refused_slots += oldest.file.refused_slots
            self.removed += 1
            with contextlib.suppress(OSError):
                oldest.path.unlink()

    def end(self, ending: bytes) -> None:
        """Close the last one."""
        self._close(self.file, ending)

    def _close(self, file: _reader.Recording, ending: bytes) -> None:
        # Where there is no room for it, whoever reads the file sees that it has no end.
        with contextlib.suppress(OSError):
            file.append(_reader.CHUNK_ENDING, time.time_ns(), ending)
        with contextlib.suppress(OSError):
            file.close()


def _reason(error: OSError | ValueError) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
