"""The daemon's recordings: those that are being written, and those not fetched yet.

Owns: which these are, and how many may be. Must not know: who asks for one, what is in it. Invariants: all that is
known of a recording is in the titles of its files, so that any process finds it, whatever became of its writer; a file
is found by its recording and its number, never by a path that somebody gives; a recording that is being written is left
alone; a daemon that answers is asked for its own, for its files may be another user's or in other mounts.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from brickd.base.paths import runtime
from brickd.base.timestamps import rfc3339
from brickd.client import client
from brickd.client.client import NoAnswer
from brickd.errors import BrickdError
from brickd.recording.rotation import SUFFIX
from brickd.shm import _reader

ROOM = 8  # recordings, the one that is written included


class LibraryFile(NamedTuple):
    """A file of a recording by id and number; `written`: its writer still has it locked."""

    recording: str
    number: int
    path: Path
    bytes: int
    made_ns: int
    written: bool

    def document(self) -> dict[str, Any]:
        """As JSON has it."""
        return {"path": os.fspath(self.path), "number": self.number, "bytes": self.bytes}


@dataclass(frozen=True, slots=True)
class Shelved:
    """A stored recording: its files in order, at least one."""

    files: tuple[LibraryFile, ...]

    @property
    def recording(self) -> str:
        """What it is called."""
        return self.files[0].recording

    @property
    def made_ns(self) -> int:
        """When its first file was made, of those that are there."""
        return self.files[0].made_ns

    @property
    def bytes(self) -> int:
        """Of all its files."""
        return sum(each.bytes for each in self.files)

    @property
    def written(self) -> bool:
        """Whether it is being written."""
        return any(each.written for each in self.files)

    def document(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "recording": self.recording,
            "made": rfc3339(self.made_ns),
            "bytes": self.bytes,
            "written": self.written,
            "files": [each.document() for each in self.files],
        }


class Shelf:
    """The directory; any thread may use it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def place(self) -> Path:
        """The path for a new recording; BrickdError if its directory cannot be made."""
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            text = f"{self._directory}: {error.strerror}; set BRICKD_STATE_DIR to a directory of yours"
            raise BrickdError(text) from None
        return self._directory / time.strftime(f"brickd-%Y%m%d-%H%M%S-{os.urandom(2).hex()}{SUFFIX}")

    def all(self) -> list[Shelved]:
        """Every recording, the oldest first."""
        found: dict[str, list[LibraryFile]] = {}
        for file in self._files():
            found.setdefault(file.recording, []).append(file)
        shelved = [Shelved(tuple(sorted(files, key=lambda each: each.number))) for files in found.values()]
        return sorted(shelved, key=lambda each: each.made_ns)

    def find(self, recording: str) -> Shelved:
        """Find a recording; BrickdError if it is not there, or is being written."""
        for each in self.all():
            if each.recording == recording:
                if each.written:
                    raise BrickdError(f"recording {recording} is still being written: end it first")
                return each
        raise BrickdError(f"no recording {recording} in {self._directory}")

    def open(self, recording: str, number: int) -> int:
        """A file, to be read: its descriptor; raises as `find` does."""
        file = self._file(recording, number)
        try:
            return _opened(file.path)
        except OSError as error:
            raise BrickdError(f"{file.path}: {error.strerror}") from None

    def remove(self, recording: str, number: int) -> None:
        """Remove a file; raises as `find` does."""
        file = self._file(recording, number)
        try:
            file.path.unlink()
        except OSError as error:
            raise BrickdError(f"{file.path}: {error.strerror}") from None

    def make_room(self) -> list[Shelved]:
        """Remove the oldest of those that are too many: these."""
        every = self.all()
        removed = [each for each in every[:-ROOM] if not each.written]
        for each in removed:
            for file in each.files:
                with contextlib.suppress(OSError):
                    file.path.unlink()
        return removed

    def _file(self, recording: str, number: int) -> LibraryFile:
        for file in self.find(recording).files:
            if file.number == number:
                return file
        raise BrickdError(f"recording {recording} has no file {number} here")

    def _files(self) -> Iterator[LibraryFile]:
        try:
            paths = [each for each in self._directory.iterdir() if each.name.endswith(SUFFIX)]
        except OSError:  # nothing was recorded yet, or it is not ours to see
            return
        for path in paths:
            with contextlib.suppress(OSError, ValueError):  # it went, or it is none of ours
                fd = _opened(path)
                try:
                    yield _described(path, fd)
                finally:
                    os.close(fd)


def _opened(path: Path) -> int:
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)


def _described(path: Path, fd: int) -> LibraryFile:
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        raise ValueError
    title = os.pread(fd, _reader.RECORDING_FIRST, 0)
    _, _, made_ns, recording, number, _ = _reader.recording_title(title)
    return LibraryFile(recording.hex(), number, path, status.st_size, made_ns, _locked(fd))


def _locked(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


NOBODY = ("none", "stale", "elsewhere")  # why no daemon answers: there is none for us


def unfetched() -> list[dict[str, Any]]:
    """All recordings, the oldest first; BrickdError if a daemon runs and does not answer."""
    try:
        recordings: list[dict[str, Any]] = client.ask("record").document()["recordings"]
        return recordings
    except NoAnswer as error:
        if error.why not in NOBODY:
            raise
        return [each.document() for each in Shelf(runtime().recordings).all()]
