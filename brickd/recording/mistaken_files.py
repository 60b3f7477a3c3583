"""Files that a user gave as recordings although they are not recordings.

Owns: the description of a file that is not a recording. Must not know: verbs, workers. Invariants: No function here
raises an exception. No function blocks either: a pipe is never opened. At most a KiB is read.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable

from brickd.recording.rotation import MAGIC, SUFFIX

RECORDING, MISSING = "a recording", "the name of a recording, but there is no such file"
_LOOK_BYTES = 1024
_KINDS = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def what_it_is(word: str) -> str | None:
    """Describe the file with this path.

    Return None if there is no such file, unless its name is that of a recording.
    """
    try:
        mode = os.stat(word).st_mode
        for applies, kind in _KINDS:
            if applies(mode):
                return kind
        with open(word, "rb") as file:
            begin = file.read(_LOOK_BYTES)
        return RECORDING if begin.startswith(MAGIC) else _content(begin)
    except PermissionError:
        return "a file that you may not read"
    except (OSError, ValueError):  # there is no such file, or the name has a NUL
        return MISSING if word.endswith(SUFFIX) else None


def named_files(words: Iterable[str | None]) -> str:
    """Return the beginning of an error message.

    It says which of these words are files, and what kind of file each one is. Return "" if none of the words is a file.
    """
    kinds = {word: kind for word in words if word and (kind := what_it_is(word)) is not None}
    return "".join(f"{word} is {kind}, expected a recording (brickd record -o FILE): " for word, kind in kinds.items())


def _content(begin: bytes) -> str:
    """Describe the file that begins with these bytes.

    >>> _content(b""), _content("größe".encode()), _content(b"import os"), _content(bytes(9))
    ('an empty file', 'a text file', 'a text file', 'a binary file')
    """
    if not begin:
        return "an empty file"
    # The last character may be incomplete, because only the beginning of the file was read.
    text = begin.decode("utf-8", "ignore").encode()
    return "a text file" if b"\0" not in begin and len(begin) - len(text) < 4 else "a binary file"
