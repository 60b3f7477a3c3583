"""Which arguments of a verb are recordings.

Owns: how one is told from a name. Must not know: what is in a recording. Invariant: what ends as recordings do is
one, whether it is there or not; a file that is called like a worker is one only if it begins as recordings do.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from brickd.recording.volumes import SUFFIX

MAGIC = b"brickrec"


def parted(words: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The recordings, and the other words."""
    words = tuple(words)
    recordings = tuple(word for word in words if _is_recording(word))
    return recordings, tuple(word for word in words if word not in recordings)


def _is_recording(word: str) -> bool:
    if word.endswith(SUFFIX):
        return True
    if not os.path.isfile(word):
        return False
    try:
        with open(word, "rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False
