"""A daemon's memory in a file: a line of title, version, length and checksum, then that many bytes of JSON.

Owns: the file's form, its replacement, the judgement whether it is whole. Must not know: what the memory means.
Invariants: the file is as it was or as it is to be, never in between; a file that was cut, or any byte of which was
changed, is refused with the reason; what a later brickd wrote is refused, not guessed at.
"""

from __future__ import annotations

import contextlib
import json
import os
import zlib
from pathlib import Path
from typing import Any

from brickd.errors import CheckpointRefused, CheckpointTooNew
from brickd.memory import Memory

VERSION = 2
_TITLE = b"brickd checkpoint "


def encode(memory: Memory) -> bytes:
    """The file's content."""
    body = [piece.encode() for piece in memory.pieces()]
    head = b"%s%d %d %08x\n" % (_TITLE, VERSION, sum(map(len, body)), _crc(VERSION, *body))
    return b"".join([head, *body])


def decode(content: bytes) -> Memory:
    """What `encode` was given.

    Raises:
        CheckpointRefused: the content is none, or not whole.
    """
    head, newline, body = content.partition(b"\n")
    if not head.startswith(_TITLE) or not newline:
        raise CheckpointRefused("is no checkpoint of brickd: its first line is none")
    try:
        version, length, crc = head[len(_TITLE) :].split(b" ")
        numbers = int(version), int(length), int(crc, 16)
    except ValueError:
        raise CheckpointRefused("is damaged in its first line") from None
    if content[: len(head)] != b"%s%d %d %08x" % (_TITLE, *numbers):
        raise CheckpointRefused("is damaged in its first line")
    if len(body) != numbers[1]:
        raise CheckpointRefused(f"is damaged: {len(body)} of {numbers[1]} bytes are there")
    if _crc(numbers[0], body) != numbers[2]:
        raise CheckpointRefused(f"is damaged: its checksum is {_crc(numbers[0], body):08x}, not {numbers[2]:08x}")
    if numbers[0] != VERSION:
        raise CheckpointTooNew(
            f"is of version {numbers[0]}, this brickd reads {VERSION}: start the brickd that wrote it"
        )
    try:
        document: dict[str, Any] = json.loads(body)
        return Memory.of(document)
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise CheckpointRefused(f"holds not what this brickd wants: {type(error).__name__}: {error}") from None


def _crc(version: int, *body: bytes) -> int:
    crc = zlib.crc32(b"%d %d" % (version, sum(map(len, body))))
    for piece in body:
        crc = zlib.crc32(piece, crc)
    return crc


def load(path: Path) -> Memory | None:
    """The memory in the file; None where there is no file.

    Raises:
        CheckpointRefused: the file is damaged, or of a later brickd.
        OSError: it cannot be read.
    """
    try:
        content = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return decode(content)


def save(path: Path, content: bytes) -> None:
    """Put the content in the file's place, whole or not at all.

    A machine that goes down takes the segments with it, so nothing here waits for a disk.

    Raises:
        OSError: it cannot be written; the file is as it was.
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
