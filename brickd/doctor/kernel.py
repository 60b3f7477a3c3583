"""Small files as the kernel and the system write them.

Owns: how such a file is read. Must not know: what is in it. Invariant: one that is not there, or that may not be read,
is None, never an error: a machine without it is what the doctor is asked about.
"""

from __future__ import annotations

from pathlib import Path


def read(path: Path, most: int = 1 << 16) -> str | None:
    """The text of a file, as far as `most` bytes go."""
    try:
        with path.open("rb") as file:
            return file.read(most).decode("utf-8", "replace")
    except OSError:
        return None


def number(path: Path) -> int | None:
    """The number that is all there is in a file."""
    text = (read(path) or "").strip()
    return int(text) if text.isascii() and text.isdigit() else None
