"""State files, which are replaced atomically. The first line has a version, the length of the body, and a checksum.

Owns: the first line, whether a file is complete, how a file is read and replaced. Must not know: the meaning of the
bytes. Invariants: A file that was cut, or changed in any byte, is refused with the reason. A file of a later version of
brickd is refused and never interpreted. A reader sees the old file or the new one, never a mixture. Unless the caller
says otherwise, the file behind a symbolic link is replaced, and a terminal, a pipe or /dev/null is written to and never
replaced.
"""

from __future__ import annotations

import contextlib
import os
import reprlib
import zlib
from collections.abc import Sequence
from pathlib import Path

from brickd.base.users import user_name
from brickd.errors import CheckpointRefused, CheckpointTooNew


def framed(kind: str, version: int, body: Sequence[bytes]) -> bytes:
    """Return the content of the file: the first line and the body."""
    head = b"%s%d %d %08x\n" % (_title(kind), version, sum(map(len, body)), _crc(version, *body))
    return b"".join([head, *body])


def unframed(kind: str, version: int, content: bytes) -> bytes:
    """Return the body of framed content.

    Raises:
        CheckpointRefused: the content is damaged.
        CheckpointTooNew: the content has another version.
    """
    title = _title(kind)
    head, newline, body = content.partition(b"\n")
    seen, wanted = reprlib.repr(head[:60].decode(errors="replace")), f"'{title.decode()}VERSION BYTES CRC'"
    if not head.startswith(title) or not newline:
        raise CheckpointRefused(f"is not a {kind} file of brickd: its first line is {seen}, expected {wanted}")
    try:
        written, length, crc = head[len(title) :].split(b" ")
        numbers = int(written), int(length), int(crc, 16)
    except ValueError:
        raise CheckpointRefused(f"is damaged: its first line is {seen}, expected {wanted}") from None
    if content[: len(head)] != b"%s%d %d %08x" % (title, *numbers):
        raise CheckpointRefused(f"is damaged: its first line is {seen}, expected {wanted}")
    if len(body) != numbers[1]:
        raise CheckpointRefused(f"is damaged: it has {len(body)} bytes, expected {numbers[1]}")
    if _crc(numbers[0], body) != numbers[2]:
        raise CheckpointRefused(f"is damaged: its checksum is {_crc(numbers[0], body):08x}, expected {numbers[2]:08x}")
    if numbers[0] != version:
        raise CheckpointTooNew(
            f"has version {numbers[0]}, this brickd reads version {version}: start the brickd that wrote it"
        )
    return body


def _title(kind: str) -> bytes:
    return f"brickd {kind} ".encode()


def _crc(version: int, *body: bytes) -> int:
    crc = zlib.crc32(b"%d %d" % (version, sum(map(len, body))))
    for piece in body:
        crc = zlib.crc32(piece, crc)
    return crc


def content_of(path: Path) -> bytes | None:
    """Read a file; None if there is no file. Raise CheckpointRefused if it belongs to another user."""
    try:
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            owner = os.fstat(file.fileno()).st_uid
            if owner != os.geteuid():
                raise CheckpointRefused(f"belongs to user {user_name(owner)}, expected {user_name(os.geteuid())}")
            return file.read()
    except (FileNotFoundError, NotADirectoryError):
        return None


def replace(path: Path, content: bytes, *, lasting: bool = True, mode: int = 0o600, follows: bool = True) -> None:
    """Replace a file, or raise OSError and leave it unchanged.

    Args:
        path: the file.
        content: its new content.
        lasting: whether the content must survive a crash of the machine.
        mode: the permissions of the new file.
        follows: whether links are followed and pipes are written to; False replaces the link or pipe itself, and never
            waits for a reader.
    """
    if follows and path.exists() and not path.is_file():
        path.write_bytes(content)
        return
    import tempfile  # imported here, because it takes 4 ms and readers do not need it

    path = path.resolve() if follows else path
    fd, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # creates a file of mode 0600
    try:
        with open(fd, "wb") as file:
            file.write(content)
            if mode != 0o600:
                os.fchmod(fd, mode)  # whatever the umask is
            if lasting:
                file.flush()
                os.fsync(file.fileno())
        os.replace(draft, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(draft)
        raise
