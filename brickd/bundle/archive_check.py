"""The check of a bundle from another machine: whether it is complete and unchanged, and what is inside.

Owns: which faults an archive may have. Must not know: tar, gzip, screens. Invariants: The archive is hostile input: its
JSON is parsed with limits, and its recordings are read by the reader of recordings from memory. At most one member is
in memory, once, and zeros in a recording take no memory. Nothing is written to a disk. A fault does not stop the check
of the other members, unless the archive itself is damaged.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from brickd.base import json_values
from brickd.base.units import plural
from brickd.bundle.archive_reader import ArchiveError, members, opened
from brickd.bundle.manifest import DOCUMENT_BYTES_MAX, MANIFEST, README, RECORDING_SUFFIX, BundleManifest, decode
from brickd.errors import BrickdError, RecordingRefused
from brickd.recording.chunks import Form
from brickd.recording.file_bytes import RecordingBytes
from brickd.recording.file_index import FileIndex

_JSON = ".json"


class SeenMember(NamedTuple):
    """A member of the archive: its length, its SHA-256, and what its content is."""

    bytes: int
    sha256: str
    content: str


class CheckedBundle(NamedTuple):
    """The result of a check. `manifest` is None if it is missing or invalid."""

    path: str
    bytes: int
    manifest: BundleManifest | None
    members: dict[str, SeenMember]
    faults: list[str]

    def document(self) -> dict[str, Any]:
        """Return the result as JSON."""
        manifest = self.manifest
        about = {} if manifest is None else {each.name: each.about for each in manifest.members}
        return {
            "schema_version": 1,
            "path": self.path,
            "bytes": self.bytes,
            "valid": not self.faults,
            "faults": self.faults,
            "manifest": None if manifest is None else manifest.document(),
            "members": [
                {"name": name, **each._asdict(), "about": about.get(name)} for name, each in self.members.items()
            ],
        }


def check(path: str) -> CheckedBundle:
    """Check an archive.

    Raises:
        BrickdError: the file cannot be read at all.
    """
    seen: dict[str, SeenMember] = {}
    faults: list[str] = []
    manifest = None
    with opened(path) as file:
        length = os.fstat(file.fileno()).st_size
        try:
            for name, pieces in members(file):
                counted = _Counted(pieces)
                try:
                    what, found = _content(name, counted)
                    manifest = manifest if found is None else found
                except (ValueError, RecordingRefused) as error:
                    reason = error.reason if isinstance(error, RecordingRefused) else str(error)
                    what = "not readable"
                    faults.append(f"{name}: {reason}")
                seen[name] = counted.seen(what)
        except ArchiveError as error:
            faults.append(f"the archive {error}")
    faults += _differences(manifest, seen)
    return CheckedBundle(path, length, manifest, seen, faults)


def _differences(manifest: BundleManifest | None, seen: dict[str, SeenMember]) -> list[str]:
    """Compare the members with the manifest."""
    if manifest is None:
        return [] if MANIFEST in seen else [f"there is no {MANIFEST}"]
    listed = {each.name: each for each in manifest.members}
    faults = [f"{name}: is not in the manifest" for name in seen if name not in listed and name != MANIFEST]
    for name, each in listed.items():
        if name not in seen:
            faults.append(f"{name}: is missing, but is in the manifest")
        elif seen[name].bytes != each.bytes:
            faults.append(f"{name}: has {seen[name].bytes:,} bytes, expected {each.bytes:,}")
        elif seen[name].sha256 != each.sha256:
            faults.append(f"{name}: has the SHA-256 {seen[name].sha256}, expected {each.sha256}")
    return faults


class _Counted:
    """The pieces of a member, with their number of bytes and their SHA-256."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._bytes, self._sha256 = 0, hashlib.sha256()

    def __iter__(self) -> Iterator[bytes]:
        for piece in self._pieces:
            self._bytes += len(piece)
            self._sha256.update(piece)
            yield piece

    def seen(self, content: str) -> SeenMember:
        """Read the rest of the member, and return what was seen of it."""
        for _ in self:
            pass
        return SeenMember(self._bytes, self._sha256.hexdigest(), content)


def _content(name: str, pieces: Iterable[bytes]) -> tuple[str, BundleManifest | None]:
    """Parse a member; return what it contains, and the manifest if it is one.

    Raises:
        ValueError, RecordingRefused: the member is not what its name says.
    """
    if name.endswith(RECORDING_SUFFIX):
        return _recording(name, pieces), None
    if name != README and not name.endswith(_JSON):
        raise ValueError(f"is not a member of a bundle, expected {README}, *{_JSON} or *{RECORDING_SUFFIX}")
    content = b"".join(pieces)
    if name.endswith(_JSON):
        with json_values.validating():
            found = json_values.document(content, DOCUMENT_BYTES_MAX)
            json_values.require(isinstance(found, dict), "an object", found)
            manifest = decode(content) if name == MANIFEST else None
        return "JSON", manifest
    content.decode("utf-8")  # UnicodeDecodeError is a ValueError
    return "text", None


def in_memory(name: str, pieces: Iterable[bytes]) -> RecordingBytes:
    """Return the pieces as a file in memory, with holes in the place of zeros."""
    file = RecordingBytes(name, fd := os.memfd_create(name, os.MFD_CLOEXEC))
    try:
        length = 0
        for piece in pieces:
            if piece.count(0) < len(piece):
                rest, at = memoryview(piece), length
                while rest:
                    written = os.pwrite(fd, rest, at)
                    rest, at = rest[written:], at + written
            length += len(piece)
        os.ftruncate(fd, length)
    except OSError as error:
        file.close()
        raise BrickdError(f"{name}: has no room in memory: {error.strerror} (raise ulimit -f)") from None
    except BaseException:
        file.close()
        raise
    return file


def _recording(name: str, pieces: Iterable[bytes]) -> str:
    """Read a recording from memory."""
    file = in_memory(name, pieces)
    try:
        with Form(file) as form:
            index = FileIndex(form)
            notes = index.end.words()
            what = f"{plural(index.counts['snapshots'], 'snapshot')}, {plural(index.counts['events'], 'event')}"
            return f"recording: {what}" + (f" ({notes[0]})" if notes else "")
    finally:
        file.close()
