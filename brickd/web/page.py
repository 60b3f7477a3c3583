"""The page as a browser loads it: the paths of its files, and the headers that restrict what the page may do.

Owns: the path of each file, the Content-Security-Policy, the URL of the page. Must not know: sockets, the data.
Invariants: The files are public, because they are the same for everybody and contain no data. The page loads nothing
from elsewhere, runs no script but its own files, sends data nowhere else, and is in no frame of another page.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from types import MappingProxyType
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


@functools.cache
def public_files() -> Mapping[str, Asset]:
    """Return the files by path: the shell at `/`, all others below `/web/`."""
    found = {"/" if name == SHELL else ROOT + name: asset for name, asset in assets().items()}
    return MappingProxyType(found)


def page_url(address: str, token: bytes | None = None) -> str:
    """Return the URL of the page at an address, with the token in its fragment, which a browser sends to no server.

    >>> page_url("127.0.0.1:9230"), page_url("127.0.0.1:9230", b"a&b")
    ('http://127.0.0.1:9230/', 'http://127.0.0.1:9230/#token=a%26b')
    """
    return f"http://{address}/" + ("" if token is None else f"#token={quote(token, safe='')}")
