"""The bytes of a recording, from its file.

Owns: access to the file, and the reports of progress. Must not know: the meaning of the bytes. Invariants: The file is
read only with pread. A read returns the bytes that are available, even if the file changes at the same time.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable

from brickd.errors import NotPermitted, RecordingRefused
from brickd.shm import _reader

_BLOCK = _reader.BLOCK_BYTES
_STEP_BYTES = 1 << 20

Reads = Callable[[str, int, int], object]
"""A function that gets the path of the file, the position of the reading, and the size of the file."""


def unreported(path: str, at: int, of: int) -> None:
    """Ignore the progress."""


class RecordingBytes:
    """An open file, with its descriptor; `trouble` tells why bytes could not be read, or is ""."""

    def __init__(self, path: str, fd: int, reads: Reads = unreported) -> None:
        self.path = path
        self.trouble = ""
        self._fd = fd
        self._reads = reads
        self._reported_at = 0

    @property
    def size(self) -> int:
        """The current size of the file."""
        return os.fstat(self._fd).st_size

    def data(self, offset: int) -> int:
        """Return the start of the next data at or after this offset. Huge files may be sparse, so holes are skipped."""
        try:
            found = os.lseek(self._fd, offset, os.SEEK_DATA)
        except OSError as error:  # with ENXIO, there is no more data; else the file system does not report holes
            found = self.size if error.errno == errno.ENXIO else offset
        return max(offset, found // _BLOCK * _BLOCK)

    def read(self, offset: int, length: int) -> bytes:
        """Read `length` bytes, or as many as the file has."""
        if not 0 <= offset - self._reported_at < _STEP_BYTES:
            self._reported_at = offset
            self._reads(self.path, offset, self.size)
        pieces: list[bytes] = []
        try:
            while length > 0 and (piece := os.pread(self._fd, length, offset)):
                pieces.append(piece)
                offset += len(piece)
                length -= len(piece)
        except OSError as error:
            self.trouble = f"cannot be read at byte {offset}: {error.strerror}"
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def close(self) -> None:
        """Close the descriptor."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def open_file(path: str, reads: Reads = unreported) -> RecordingBytes:
    """Open a file. Raise RecordingRefused if it is not a recording, NotPermitted if this user may not read it."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except PermissionError as error:
        raise NotPermitted(f"{path}: cannot be opened: {error.strerror} (run brickd as its owner)") from error
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise RecordingRefused(
            path, f"cannot be opened: {reason} (brickd record -o FILE writes a recording)"
        ) from error
    mode = os.fstat(fd).st_mode
    if not stat.S_ISREG(mode):
        os.close(fd)
        raise RecordingRefused(path, f"is not a recording: its mode is {stat.filemode(mode)}, expected a regular file")
    return RecordingBytes(path, fd, reads)
