"""Packed summaries as JSON.

Owns: how they stand within a document. Must not know: what is in them. Invariant: what was packed comes back as it
was, and what nobody packed is a ValueError.
"""

from binascii import a2b_base64, b2a_base64

from brickd import _reader


def text(packed: _reader.Packed) -> str:
    """As JSON: a string, in which nothing is to be escaped; of none the empty one."""
    return f'"{b2a_base64(packed.form(), newline=False).decode("ascii")}"'


def packed(text: str) -> _reader.Packed:
    """What `text` said."""
    return _reader.Packed.of(a2b_base64(text, strict_mode=True))
