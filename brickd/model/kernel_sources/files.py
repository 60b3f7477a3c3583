"""The files of complete sources, one file for each source.

Owns: the directory, the names and the format of the files, the limits. Must not know: how a source is assembled, who
uses it. Invariants: A file is complete or missing, and only its owner may access it. The content of a file is returned
only if its hash matches the file's name. Several daemons may share the directory, because they write the same content.
"""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

from brickd.base.state_file import framed, replace, unframed
from brickd.errors import CheckpointRefused
from brickd.model.kernel_sources.assembly import KernelSource, SourceHead, decoded, head_of

FILES_MAX = 4_096
BYTES_MAX = 64 << 20

_KIND, _VERSION = "source", 1
_NAME = re.compile(r"[0-9a-f]{16}")
_DRAFT = re.compile(r"\.[0-9a-f]{16}\..+")
_HEAD_BYTES = 1 << 14
_FILE_BYTES_MAX = 1 << 21


class Filed:
    """The directory of sources. Any thread may use it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def hashes(self) -> list[int]:
        """Return the hashes of all files, the least recently used file first."""
        return [int(entry.name, 16) for entry in self._entries()]

    def heads(self) -> dict[int, SourceHead]:
        """Return the heads of all files."""
        found: dict[int, SourceHead] = {}
        for hash_ in self.hashes():
            with contextlib.suppress(OSError, ValueError):
                _, head = head_of(self._content(hash_, _HEAD_BYTES).partition(b"\n")[2])
                found[hash_] = head
        return found

    def read(self, hash_: int) -> KernelSource | None:
        """Read one source; return None if there is no file or its content is invalid."""
        try:
            source = decoded(unframed(_KIND, _VERSION, self._content(hash_, _FILE_BYTES_MAX)))
        except (OSError, ValueError, CheckpointRefused):
            return None
        return source if source.hash == hash_ else None

    def write(self, source: KernelSource) -> None:
        """Write one source. There is no fsync: after a crash, the hash shows whether the file is complete."""
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace(self._path(source.hash), framed(_KIND, _VERSION, source.encoded()), lasting=False)

    def touch(self, hash_: int) -> None:
        """Mark a file as used."""
        with contextlib.suppress(OSError):
            os.utime(self._path(hash_))

    def make_room(self) -> list[int]:
        """Remove files over the limits, the least recently used first; return their hashes."""
        entries = self._entries()
        sizes = [entry.stat().st_size for entry in entries]
        removed, left, size = [], len(entries), sum(sizes)
        for entry, bytes_ in zip(entries, sizes, strict=True):
            if left <= FILES_MAX and size <= BYTES_MAX:
                break
            with contextlib.suppress(OSError):
                os.unlink(entry)
                removed.append(int(entry.name, 16))
            left, size = left - 1, size - bytes_
        return removed

    def tidy(self) -> None:
        """Remove drafts whose writer was killed."""
        with contextlib.suppress(OSError):
            for path in [path for path in self.directory.iterdir() if _DRAFT.fullmatch(path.name)]:
                path.unlink()

    def _entries(self) -> list[os.DirEntry[str]]:
        dated = []
        try:
            with os.scandir(self.directory) as found:
                for entry in found:
                    with contextlib.suppress(OSError):  # the file was removed by another process
                        if _NAME.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                            dated.append((entry.stat().st_mtime_ns, entry.name, entry))
        except OSError:  # there is no directory yet, or it belongs to another user
            return []
        return [entry for *_, entry in sorted(dated, key=lambda each: each[:2])]

    def _content(self, hash_: int, most: int) -> bytes:
        fd = os.open(self._path(hash_), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        with open(fd, "rb") as file:
            return file.read(most)

    def _path(self, hash_: int) -> Path:
        return self.directory / f"{hash_:016x}"
