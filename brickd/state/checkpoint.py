"""A daemon's memory in a file, as JSON.

Owns: the file's form, and how such a file is replaced. Must not know: what the memory means. Invariant: the file is as
it was or as it is to be, never in between.
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
    """The file's content."""
    return framed("checkpoint", VERSION, [piece.encode() for piece in memory.pieces()])


def decode(content: bytes) -> Memory:
    """Decode what `encode` encoded; CheckpointRefused if it is damaged or something else."""
    body = unframed("checkpoint", VERSION, content)
    try:
        with validating():
            return Memory.of(parsed(body))
    except ValueError as error:
        raise CheckpointRefused(str(error)) from None


def load(path: Path) -> Memory | None:
    """The memory in the file; None: no file. Raises CheckpointRefused or OSError."""
    content = content_of(path)
    return None if content is None else decode(content)


def save(path: Path, content: bytes) -> None:
    """Replace a file whole, or raise OSError and leave it as it was.

    A machine that goes down takes the segments with it, so nothing here waits for a disk.
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
