"""A draft: a file that gets its name when it is complete.

Owns: how a draft gets its name, and when the name is on the disk. Must not know: what the file contains, who reads it.
Invariants: An existing file is replaced only if the caller says so. Until the draft gets its name, the path has the old
file, no file, or for a moment an empty one. Afterwards, a crash of the machine no longer changes the directory.
"""

from __future__ import annotations

import os
from pathlib import Path


def name_draft(draft: Path, path: Path, *, replace: bool = False) -> None:
    """Give a draft in the same directory its name.

    Args:
        draft: the complete file.
        path: the name.
        replace: whether an existing file may be replaced.

    Raises:
        FileExistsError: the path has a file that may not be replaced.
    """
    if replace:
        draft.replace(path)
    else:
        # A rename alone would overwrite a file, and some file systems have no links. So the name is reserved first.
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        try:
            draft.rename(path)
        except OSError:
            path.unlink(missing_ok=True)
            raise
    _sync(path.parent)


def _sync(directory: Path) -> None:
    """Write the names of a directory to the disk."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
