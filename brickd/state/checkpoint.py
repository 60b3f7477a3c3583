"""The state of a daemon in a file, as JSON.

Owns: the format of the file, and how the file is replaced. Must not know: the meaning of the state. Invariant: the file
has either its old or its new content, never a mixture.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from brickd.base.json_values import parsed, validating
from brickd.base.state_file import content_of, framed, unframed
from brickd.errors import CheckpointRefused
from brickd.state.daemon_state import Memory

VERSION = 2


def encode(memory: Memory) -> bytes:
    """Return the content of the file."""
    return framed("checkpoint", VERSION, [piece.encode() for piece in memory.pieces()])


def decode(content: bytes) -> Memory:
    """Decode the output of `encode`; raise CheckpointRefused if it is invalid."""
    body = unframed("checkpoint", VERSION, content)
    try:
        with validating():
            return Memory.of(parsed(body))
    except ValueError as error:
        raise CheckpointRefused(str(error)) from None


def load(path: Path) -> Memory | None:
    """Read the state from a file; None if there is no file. Raise CheckpointRefused or OSError."""
    content = content_of(path)
    return None if content is None else decode(content)


def save(path: Path, content: bytes) -> None:
    """Replace a file atomically, or raise OSError and leave the file unchanged.

    There is no fsync, because a crash of the machine loses the segments anyway.
    """
    draft = path.with_name(path.name + ".new")
    try:
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            rest = memoryview(content)
            while rest:
                rest = rest[os.write(fd, rest) :]
        finally:
            os.close(fd)
        os.replace(draft, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(draft)
        raise
