"""Segments whose headers have the highest possible counts, and that have almost no content.

`python -m benchmarks.sparse COUNT` creates them, prints their memory in bytes, holds a worker's lock on each, and ends
when its stdin closes.
"""

from __future__ import annotations

import fcntl
import os
import struct
import sys
import zlib

from brickd.shm import _reader
from brickd.shm.segment_files import find, prefix

LANES, NUMBERS = _reader.LANES_MAX, _reader.NUMBERS_MAX
_PAGE = 4096
_FIELDS = {(row[0], row[1]): (row[2], row[3], row[4]) for row in _reader.layout()}


def _put(into: bytearray, record: str, field: str, value: bytes | int) -> None:
    offset, count, code = _FIELDS[record, field]
    content = value if isinstance(value, bytes) else struct.pack(f"<{code}", value)
    into[offset : offset + len(content)] = content.ljust(count, b"\0")[: len(content)]


def _size(record: str) -> int:
    return max(
        offset + count * struct.calcsize(code) for (of, _), (offset, count, code) in _FIELDS.items() if of == record
    )


def _template() -> tuple[bytes, int]:
    """Return the header of the largest possible segment, and the size of its file."""
    import brick_agent as brick

    names = {"LANES": LANES, "PATHS": NUMBERS, "NAMES": NUMBERS, "SITES": _reader.SITES_MAX}
    os.environ.update({f"BRICKD_{name}": str(value) for name, value in names.items()})
    if not brick.init("sparse"):
        raise RuntimeError("no segment could be opened: see the line that brick_agent wrote")
    with open(os.path.join(_reader.DIRECTORY, find()[0]), "rb") as made:
        found = made.read(_PAGE), os.fstat(made.fileno()).st_size
    brick.shutdown()
    return found


def _sealed(page: bytes) -> bytes:
    """Return the header with a new uuid and the matching checksum."""
    made = bytearray(page)
    _put(made, "header", "uuid", os.urandom(16))
    magic = bytes(made[:8])
    for field, width in (("magic", 8), ("header_crc", 4)):
        _put(made, "header", field, bytes(width))
    _put(made, "header", "header_crc", zlib.crc32(made))
    made[:8] = magic
    return bytes(made)


def _made(name: str, page: bytes, size: int) -> int:
    """Create a file in which every lane was used once, and take the lock that its worker would hold."""
    process, lane = bytearray(_size("process")), bytearray(_size("lane"))
    for field in ("names", "paths"):
        _put(process, "process", field, NUMBERS)
    _put(lane, "lane", "opened", 1)
    behind = 2 * _PAGE + -(-LANES * _size("consumer") // _PAGE) * _PAGE
    fd = os.open(os.path.join(_reader.DIRECTORY, name), os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    os.ftruncate(fd, size)
    os.pwrite(fd, process + lane * LANES, behind)
    fcntl.lockf(fd, fcntl.LOCK_EX, 1, _reader.LOCK_WORKER)
    os.pwrite(fd, _sealed(page), 0)
    return fd


def main() -> None:
    """Create the segments, and wait."""
    page, size = _template()
    made = [_made(f"{prefix()}{number:04}", page, size) for number in range(int(sys.argv[1]))]
    print(sum(os.fstat(fd).st_blocks for fd in made) * 512, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
