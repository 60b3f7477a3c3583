"""The files of the web page.

Owns: which files of the package a browser may get, and their types. Must not know: HTTP, tokens. Invariants: All files
are read once, before the first request. A name from a request is only looked up in the table, and never becomes a path.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

STATIC = Path(__file__).parent / "static"
TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
}


class Asset(NamedTuple):
    """One file: its bytes and the value of its header Content-Type."""

    body: bytes
    content_type: str


@functools.cache
def assets() -> Mapping[str, Asset]:
    """Return all files of the page by name. The name of a file in a folder has a slash, as in `views/tree.js`.

    Files of other types, such as the backup of an editor in a source tree, are left out.
    """
    found = {
        path.relative_to(STATIC).as_posix(): Asset(path.read_bytes(), TYPES[path.suffix])
        for path in sorted(STATIC.rglob("*"))
        if path.suffix in TYPES and path.is_file()
    }
    return MappingProxyType(found)
