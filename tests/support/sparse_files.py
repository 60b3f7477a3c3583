"""Reads and copies sparse files, such as segments, whose holes are much larger than their data.

A segment with the default limits has 321 MB, of which a worker uses less than half a megabyte. Reading all of a segment
takes 90 ms of processor time.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path


def parts(file: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the offset and the bytes of each part between holes."""
    with file.open("rb", buffering=0) as opened:
        fd, at = opened.fileno(), 0
        while True:
            try:
                start = os.lseek(fd, at, os.SEEK_DATA)
            except OSError as error:
                if error.errno != errno.ENXIO:  # no data after this offset
                    raise
                return
            at = os.lseek(fd, start, os.SEEK_HOLE)
            yield start, os.pread(fd, at - start, start)


def copy(file: Path, to: Path) -> None:
    """Create a copy with the same holes."""
    with to.open("xb") as made:
        for start, part in parts(file):
            made.seek(start)
            made.write(part)
        made.truncate(file.stat().st_size)
