"""The daemon's recordings: those that are being written, and those that have not been fetched yet.

Owns: which recordings exist, and their limit. Must not know: callers, the content of recordings. Invariants: A
recording is identified by the titles in its files, so any process finds it, even if its writer has ended. A file is
found by its recording and its number, never by a path from a request. A recording that is being written is never
changed. While a daemon runs, only the daemon lists its recordings, because its files may belong to another user or be
in another mount namespace.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
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

_FLIGHT = re.compile(rf"flight-[0-9]{{8}}-[0-9]{{6}}-[0-9a-f]{{8}}{re.escape(SUFFIX)}")

ROOM = 8  # the limit of recordings, including the one that is being written


class LibraryFile(NamedTuple):
    """A file of a recording. `written` tells whether the file's writer still holds the lock on it."""

    recording: str
    number: int
    path: Path
    bytes: int
    made_ns: int
    written: bool

    def document(self) -> dict[str, Any]:
        """Return the file as JSON."""
        return {"path": os.fspath(self.path), "number": self.number, "bytes": self.bytes}


@dataclass(frozen=True, slots=True)
class Shelved:
    """A stored recording: its files (at least one), in order."""

    files: tuple[LibraryFile, ...]

    @property
    def recording(self) -> str:
        """The id of the recording."""
        return self.files[0].recording

    @property
    def made_ns(self) -> int:
        """When the first of the existing files was created."""
        return self.files[0].made_ns

    @property
    def bytes(self) -> int:
        """The size of all its files."""
        return sum(each.bytes for each in self.files)

    @property
    def written(self) -> bool:
        """Whether the recording is being written."""
        return any(each.written for each in self.files)

    def document(self) -> dict[str, Any]:
        """Return the recording as JSON."""
        return {
            "recording": self.recording,
            "made": rfc3339(self.made_ns),
            "bytes": self.bytes,
            "written": self.written,
            "files": [each.document() for each in self.files],
        }


class Shelf:
    """The directory of recordings. Any thread may use it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def place(self) -> Path:
        """Return the path for a new recording; raise BrickdError if its directory cannot be created."""
        return self._placed(f"brickd-%Y%m%d-%H%M%S-{os.urandom(2).hex()}{SUFFIX}")

    def _placed(self, name: str) -> Path:
        """Return the path for a file with a name in which `strftime` fills in the current time."""
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            text = f"{self._directory}: {error.strerror} (set BRICKD_STATE_DIR to a directory of yours)"
            raise BrickdError(text) from None
        return self._directory / time.strftime(name)

    def all(self) -> list[Shelved]:
        """Return all recordings, the oldest first."""
        found: dict[str, list[LibraryFile]] = {}
        for file in self._files():
            found.setdefault(file.recording, []).append(file)
        shelved = [Shelved(tuple(sorted(files, key=lambda each: each.number))) for files in found.values()]
        return sorted(shelved, key=lambda each: each.made_ns)

    def has(self, recording: str) -> bool:
        """Whether a recording exists."""
        return any(each.recording == recording for each in self.all())

    def find(self, recording: str) -> Shelved:
        """Find a recording; raise BrickdError if it does not exist or is being written."""
        for each in self.all():
            if each.recording == recording:
                if each.written:
                    raise BrickdError(f"recording {recording} is still being written: end it first ({ENDING})")
                return each
        raise BrickdError(f"no recording {recording} in {self._directory} (brickd doctor lists the recordings)")

    def open(self, recording: str, number: int) -> int:
        """Open a file for reading and return its descriptor, or raise the errors of `find`."""
        file = self._file(recording, number)
        try:
            return _opened(file.path)
        except OSError as error:
            raise BrickdError(f"{file.path}: cannot be opened: {error.strerror} (check its owner and mode)") from None

    def remove(self, recording: str, number: int) -> None:
        """Remove a file, or raise the errors of `find`."""
        _unlink(self._file(recording, number).path)

    def make_room(self) -> list[Shelved]:
        """Remove the oldest recordings above the limit; return the removed recordings."""
        every = self.all()
        removed = [each for each in every[:-ROOM] if not each.written]
        for each in removed:
            for file in each.files:
                with contextlib.suppress(OSError):
                    file.path.unlink()
        return removed

    def _may_be_ours(self, name: str) -> bool:
        """Whether a file with this name may belong to a recording."""
        return name.endswith(SUFFIX)

    def _file(self, recording: str, number: int) -> LibraryFile:
        files = self.find(recording).files
        for file in files:
            if file.number == number:
                return file
        first, last = files[0].number, files[-1].number
        raise BrickdError(f"recording {recording} has no file {number}, expected {first} to {last}")

    def _files(self) -> Iterator[LibraryFile]:
        try:
            paths = [each for each in self._directory.iterdir() if self._may_be_ours(each.name)]
        except OSError:  # the directory does not exist yet, or this user may not read it
            return
        for path in paths:
            with contextlib.suppress(OSError, ValueError):  # the file was removed, or is not a recording
                fd = _opened(path)
                try:
                    yield _described(path, fd)
                finally:
                    os.close(fd)


class FlightShelf(Shelf):
    """The directory of the recordings that the flight recorder made. Files with other names are left alone."""

    def place_for(self, problem: str) -> Path:
        """Return the path for a recording of the problem with this id, or raise BrickdError."""
        return self._placed(f"flight-%Y%m%d-%H%M%S-{problem}{SUFFIX}")

    def keep(self, most: int, bytes_max: int) -> list[Shelved]:
        """Remove the oldest recordings until at most `most` are left, with at most `bytes_max` bytes.

        A process that has opened a removed file can read it to its end. Return the removed recordings.

        Raises:
            BrickdError: a recording cannot be removed.
        """
        left, removed = self.all(), list[Shelved]()
        for oldest in [each for each in left if not each.written]:
            if len(left) <= most and sum(each.bytes for each in left) <= bytes_max:
                break
            for file in oldest.files:
                _unlink(file.path)
            left.remove(oldest)
            removed.append(oldest)
        return removed

    def _may_be_ours(self, name: str) -> bool:
        return _FLIGHT.fullmatch(name) is not None


def _unlink(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)  # another daemon with the same state directory may have removed it
    except OSError as error:
        text = f"{path}: cannot be removed: {error.strerror} (check the owner and mode of its directory)"
        raise BrickdError(text) from None


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


ENDING = "Ctrl-C in its brickd record"  # words for how to end a recording
NO_DAEMON = ("none", "stale", "elsewhere")  # the reasons that mean that no daemon serves this user


def unfetched() -> list[dict[str, Any]]:
    """Return all recordings, the oldest first; raise BrickdError if a daemon runs but does not answer."""
    return _listed("recordings", Shelf(runtime().recordings))


def flight_recordings() -> list[dict[str, Any]]:
    """Return the recordings of the flight recorder, the oldest first; raise BrickdError as `unfetched` does."""
    return _listed("flight_recordings", FlightShelf(runtime().flight_recordings))


def _listed(key: str, here: Shelf) -> list[dict[str, Any]]:
    """Return what the daemon lists under this key of its answer. Without a daemon, list the directory."""
    try:
        # an earlier daemon has no flight recordings
        recordings: list[dict[str, Any]] = client.ask("record").document().get(key, [])
        return recordings
    except NoAnswer as error:
        if error.why not in NO_DAEMON:
            raise
        return [each.document() for each in here.all()]
