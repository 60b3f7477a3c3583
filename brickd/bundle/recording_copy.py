"""A copy of a redacted recording without private words.

Owns: which bodies of chunks are texts, and how they are rewritten. Must not know: which words are private, how a
recording is made. Invariants: The copy is a complete recording with the same id, and every view shows the same numbers.
Records of rings are copied unchanged, so only a redacted recording is copied: its records have no texts. Sources of
kernels, damaged chunks and chunks of unknown kinds are left out.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

from brickd.analysis.weights import codec
from brickd.base.json_values import parsed, plain, validating
from brickd.base.units import size
from brickd.bundle.manifest import RECORDING_BYTES_MAX
from brickd.bundle.private_words import PrivateWords
from brickd.errors import BrickdError, RecordingRefused
from brickd.recording.body_codec import Beginning, read_beginning
from brickd.recording.chunks import Chunk, Form, open_recording
from brickd.shm import _reader

# The bodies that are one JSON value with texts.
_TEXTS = frozenset(
    (_reader.CHUNK_BEGINNING, _reader.CHUNK_EVENTS, _reader.CHUNK_TABLES, _reader.CHUNK_SNAPSHOT, _reader.CHUNK_ENDING)
)
# The texts in a snapshot that are numbers: a word may occur in them by chance.
_NUMBERS = frozenset(("summaries", "latency", "left_out", "uuid", "boot_id"))
_PIECE_BYTES = 1 << 20
_FIELD_BYTES = 64  # the length of these fields of a segment's header


def beginning(form: Form) -> Beginning:
    """Return the beginning of a recording; RecordingRefused: it has none."""
    for chunk in form.only(_reader.CHUNK_BEGINNING):
        with contextlib.suppress(ValueError):
            return read_beginning(chunk.body)
    raise RecordingRefused(form.path, "has no readable beginning")


def copy_file(source: Path, target: Path, words: PrivateWords | None) -> None:
    """Copy a recording into a new file: without private words, or byte by byte if `words` is None.

    Raises:
        BrickdError: the recording cannot be read or copied.
    """
    fd = os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        if words is not None:
            with open_recording(os.fspath(source)) as form:
                _copy_redacted(form, fd, words)
            return
        with source.open("rb") as file, open(fd, "wb", closefd=False) as out:
            left = RECORDING_BYTES_MAX
            while piece := file.read(_PIECE_BYTES):
                left -= len(piece)
                if left < 0:
                    raise BrickdError(
                        f"{source}: has more than {size(RECORDING_BYTES_MAX)}, the limit of a recording in a bundle"
                    )
                out.write(piece)
    except OSError as error:
        raise BrickdError(f"{source}: cannot be copied: {error.strerror or error}") from None
    finally:
        os.close(fd)


def _copy_redacted(form: Form, fd: int, words: PrivateWords) -> None:
    """Write a copy into an empty file.

    Raises:
        RecordingRefused: the recording is not redacted.
        OSError: the copy cannot be written, or exceeds the limit of a bundle.
    """
    began = beginning(form)
    if not began.redacted:
        raise RecordingRefused(form.path, "is not redacted: record with --redact, or use --no-redact")
    words = words.and_host(began.host)  # a daemon in a container has another name of the host
    title = form.title
    file = _reader.Recording(fd, RECORDING_BYTES_MAX, id=title.id, number=title.number, made_ns=title.made_ns)
    for chunk in form:
        with contextlib.suppress(ValueError):  # a chunk that no view could read either
            _copy(file, chunk, words)
    file.close()


def _copy(file: _reader.Recording, chunk: Chunk, words: PrivateWords) -> None:
    if chunk.kind == _reader.CHUNK_RECORDS:
        file.append_records(chunk.at_ns, chunk.body)
    elif chunk.kind == _reader.CHUNK_WORKERS:
        file.append(chunk.kind, chunk.at_ns, chunk.body)
    elif chunk.kind == _reader.CHUNK_WEIGHTS:
        line, rest = codec.parted(chunk.body)
        file.append(chunk.kind, chunk.at_ns, plain(_weights(_parsed(line), words)).encode() + b"\n" + rest)
    elif chunk.kind in _TEXTS:
        found = _parsed(chunk.body)
        if chunk.kind == _reader.CHUNK_SNAPSHOT:
            _rewrite_headers(found, words)
        file.append(chunk.kind, chunk.at_ns, plain(words.value(found, _NUMBERS)).encode())


def _parsed(body: bytes) -> Any:
    with validating():
        return parsed(body)


def _rewrite_headers(snapshot: Any, words: PrivateWords) -> None:
    """Rewrite the fields of workers' headers that are bytes: the name of the service and the coordinates."""
    with validating():
        for worker in snapshot["workers"]:
            header = worker["reading"]["header"]
            for name in ("service", "coordinates"):
                field = bytes.fromhex(header[name])  # padded with zeros, unless the worker is an aggregate
                before = field.rstrip(b"\0").decode("utf-8", "surrogateescape")
                after = words.text(before).encode("utf-8", "surrogateescape")[:_FIELD_BYTES]
                header[name] = after.ljust(len(field), b"\0").hex()


def _weights(line: Any, words: PrivateWords) -> Any:
    """Rewrite the line of weights, whose keys under `tensors` are services."""
    with validating():
        tensors = {words.text(service): words.value(rows) for service, rows in line["tensors"].items()}
        return {**words.value(line), "tensors": tensors}
