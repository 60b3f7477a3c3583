"""The archive of a bundle, written: a gzip-compressed tar file.

Owns: the temporary file, the headers of members, the modes. Must not know: what members contain. Invariants: At the
end, the path has the complete archive, which is on the disk; after an error, it is as it was. An existing file is
replaced only if the caller says so, and a link or a directory never. The file has mode 0600. The headers contain no
name of a user, a host or a folder.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import stat
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from brickd.base.draft_file import name_draft
from brickd.errors import BrickdError

_MODE = 0o600
_LEVEL = 6


class ArchiveWriter:
    """An archive that is being written."""

    def __init__(self, tar: tarfile.TarFile, made: int) -> None:
        self._tar, self._made = tar, made

    def add(self, name: str, content: bytes) -> None:
        """Add a member."""
        self.copy(name, io.BytesIO(content), len(content))

    def copy(self, name: str, file: IO[bytes], length: int) -> None:
        """Add a member, whose content is the next `length` bytes of a file."""
        head = tarfile.TarInfo(name)
        head.size, head.mode, head.mtime = length, _MODE, self._made
        self._tar.addfile(head, file)


def require_free(path: Path, *, force: bool) -> None:
    """Raise BrickdError if the archive cannot be written to this path, so that no work is done in vain."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        mode = None
    except OSError as error:
        raise _failed(path, error) from None
    if mode is not None and not stat.S_ISREG(mode):
        kind = "a link" if stat.S_ISLNK(mode) else f"not a regular file (mode {stat.filemode(mode)})"
        raise BrickdError(f"{path}: is {kind}: use another -o FILE")
    if mode is not None and not force:
        raise BrickdError(f"{path}: already exists: use another -o FILE, or --force")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        reason = "not a writable directory" if path.parent.exists() else "no such directory"
        raise BrickdError(f"{path.parent}: {reason}: use another -o FILE")


@contextlib.contextmanager
def archive(path: Path, made: int, *, force: bool) -> Iterator[ArchiveWriter]:
    """Write an archive; at the end, it gets its name. After an error or Ctrl-C, nothing is left."""
    require_free(path, force=force)
    try:
        fd, draft = tempfile.mkstemp(dir=path.parent, prefix=".brickd-")
    except OSError as error:
        raise _failed(path, error) from None
    try:
        with open(fd, "wb") as file:
            with (
                gzip.GzipFile("", "wb", _LEVEL, file, mtime=made) as packed,
                tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as tar,
            ):
                yield ArchiveWriter(tar, made)
            file.flush()
            os.fsync(fd)
        _name(Path(draft), path, force=force)
    except OSError as error:
        raise _failed(path, error) from None
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(draft)


def _name(draft: Path, path: Path, *, force: bool) -> None:
    """Give the draft its name."""
    if force:
        require_free(path, force=True)  # a link may have come since
    try:
        name_draft(draft, path, replace=force)
    except FileExistsError:
        raise BrickdError(f"{path}: already exists: use another -o FILE, or --force") from None


def _failed(path: Path, error: OSError) -> BrickdError:
    return BrickdError(f"{path}: cannot be written: {error.strerror or error}: use another -o FILE")
