"""Bytes that are mostly zeros, as text.

Owns: how an array stands within a JSON document. Must not know: what is in it. Invariant: what was packed comes back
byte for byte.
"""

import base64
import zlib


def pack(data: bytes) -> str:
    """Make text of bytes; of none the empty text."""
    return base64.b64encode(zlib.compress(data, 1)).decode() if data else ""


def unpack(text: str) -> bytes:
    """Undo `pack`."""
    return zlib.decompress(base64.b64decode(text)) if text else b""
