"""The page as a browser loads it: the paths of its files, and the headers that restrict what the page may do.

Owns: the path of each file, the Content-Security-Policy, the URL of the page. Must not know: sockets, the data.
Invariants: The files are public, because they are the same for everybody and contain no data. The page loads only its
own files, runs no script but these, sends data nowhere else, and is in no frame of another page.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple
from urllib.parse import quote

from brickd.web.assets import Asset, assets

SHELL = "index.html"
ROOT = "/web/"

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS: Mapping[str, str] = MappingProxyType(
    {
        "content-security-policy": POLICY,
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "cross-origin-opener-policy": "same-origin",
        "cross-origin-resource-policy": "same-origin",
    }
)


class PagePlace(NamedTuple):
    """Where a daemon serves its page: the address, and the file with the token."""

    address: str
    token_file: Path

    def document(self) -> dict[str, str]:
        """Return what the index of the API says about it."""
        return {"address": self.address, "token_file": os.fspath(self.token_file)}


@functools.cache
def public_files() -> Mapping[str, Asset]:
    """Return the files by path: the shell at `/`, all others below `/web/`."""
    found = {"/" if name == SHELL else ROOT + name: asset for name, asset in assets().items()}
    return MappingProxyType(found)


def page_url(address: str, token: bytes | None = None) -> str:
    """Return the URL of the page at an address, with the token in its fragment, which a browser sends to no server.

    >>> page_url("127.0.0.1:9230"), page_url("127.0.0.1:9230", b"a&b/c")
    ('http://127.0.0.1:9230/', 'http://127.0.0.1:9230/#token=a%26b%2Fc')
    """
    return f"http://{address}/" + ("" if token is None else f"#token={quote(token, safe='')}")
