"""A file in the place of another.

Owns: how one is replaced. Must not know: what is in it. Invariants: at any time, whoever else writes it, the file is as
it was or as it is to be, never in between; a link stays one, to another file; what is no file, as a terminal, a pipe or
/dev/null, is written to and stays what it is.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path


def replace(path: Path, content: bytes, *, lasting: bool = True) -> None:
    """Put the content in the file's place, for its owner alone, whole or not at all.

    Args:
        path: of the file.
        content: what is to be in it.
        lasting: whether it is to be there when the machine has gone down just after that.

    Raises:
        OSError: it cannot be written; the file is as it was.
    """
    if path.exists() and not path.is_file():
        path.write_bytes(content)
        return
    path = path.resolve()
    fd, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # of mode 0600
    try:
        with open(fd, "wb") as file:
            file.write(content)
            if lasting:
                file.flush()
                os.fsync(file.fileno())
        os.replace(draft, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(draft)
        raise
