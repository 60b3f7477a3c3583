"""The small files in which the kernel describes this machine.

Owns: how such a file is read. Must not know: what a file means. Invariant: a missing or unreadable file is None, never
an error.
"""

from __future__ import annotations

from pathlib import Path


def read(path: Path, most: int = 1 << 16) -> str | None:
    """Read the text of a file, `most` bytes at most."""
    try:
        with path.open("rb") as file:
            return file.read(most).decode("utf-8", "replace")
    except OSError:
        return None


def number(path: Path) -> int | None:
    """Read a file that contains only a number."""
    text = (read(path) or "").strip()
    return int(text) if text.isascii() and text.isdigit() else None
