"""The file of an export: replaced when it is complete.

Owns: the temporary file, the errors of writing. Must not know: formats. Invariants: the path has the old file or the
complete new one, unless the machine crashes. An export can be repeated, so it does not wait until the disk has the
data. A new file has mode 0600, because spans describe a customer's work. A pipe, a terminal or /dev/null is never
replaced.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from brickd.errors import BrickdError

STDOUT = "-"


class OutputFile:
    """An open file; `bytes` is the number of written bytes."""

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self.bytes = 0
        self._fd = fd

    def write(self, piece: bytes | memoryview) -> None:
        """Write all bytes. BrickdError: the disk is full, or the file cannot be written."""
        rest = memoryview(piece)
        try:
            while rest:
                done = os.write(self._fd, rest)
                self.bytes += done
                rest = rest[done:]
        except OSError as error:
            if error.errno == errno.EPIPE and self.path == STDOUT:
                raise
            raise failed(self.path, error, self.bytes) from None


def failed(path: str, error: OSError, done: int = 0) -> BrickdError:
    """Return the error for a file that cannot be written."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        advice = "free some space, or export less (--brick, --step, --longer, or the name of a worker)"
        return BrickdError(f"{path}: no space is left after {done:,} bytes, nothing was kept: {advice}")
    return BrickdError(f"{path}: cannot be written: {error.strerror}: use another -o FILE")


@contextlib.contextmanager
def output_file(path: str) -> Iterator[OutputFile]:
    """Open the file; replace the old one at the end, unless an error occurs. `-` is stdout."""
    if path == STDOUT:
        sys.stdout.flush()
        yield OutputFile(path, sys.stdout.fileno())
        return
    place = Path(path)
    if place.is_dir():
        raise BrickdError(f"{path}: is a directory, expected a file: use another -o FILE")
    try:
        if place.exists() and not place.is_file():
            fd, draft = os.open(place, os.O_WRONLY | os.O_CLOEXEC), None
        else:
            place = place.resolve()
            fd, draft = tempfile.mkstemp(dir=place.parent, prefix=f".{place.name[:100]}.")
    except OSError as error:
        raise failed(path, error) from None
    file = OutputFile(path, fd)
    try:
        yield file
        if draft is not None:
            os.replace(draft, place)
            draft = None
    except OSError as error:
        raise failed(path, error, file.bytes) from None
    finally:
        os.close(fd)
        if draft is not None:
            with contextlib.suppress(OSError):
                os.unlink(draft)
