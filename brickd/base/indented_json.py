"""JSON for people: each member has its own line, indented by two spaces.

Owns: the encoder. Must not know: documents, files. Invariant: The text is that of `json.dumps(value, indent=2)` without
NaN. With an indent, json uses an encoder in Python that takes twice as long.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from json.encoder import encode_basestring_ascii as _text
from typing import Any

_ENCODER = json.JSONEncoder(allow_nan=False)
_CONSTANTS = {None: "null", True: "true", False: "false"}
_SCALARS: dict[type, Callable[[Any], str]] = {
    str: _text,
    int: int.__repr__,
    bool: _CONSTANTS.__getitem__,
    type(None): _CONSTANTS.__getitem__,
}
_LISTS = (list, tuple)


def indented(value: Any) -> str:
    """Encode a value. The keys of its dicts are texts.

    >>> print(indented({"a": [1, 2], "b": {}}))
    {
      "a": [
        1,
        2
      ],
      "b": {}
    }
    """
    return _indented(value, "\n")


def _indented(value: Any, line: str) -> str:
    """Encode a value; `line` is a line break and the indent of the container around it."""
    inner, of = line + "  ", _SCALARS.get
    # The scalars are encoded here, because a call for each of them would take as long as the rest.
    if value and isinstance(value, dict):
        rows = [
            f"{_text(key)}: {_indented(member, inner) if (scalar := of(type(member))) is None else scalar(member)}"
            for key, member in value.items()
        ]
        return f"{{{inner}{f',{inner}'.join(rows)}{line}}}"
    if value and isinstance(value, _LISTS):
        rows = [
            _indented(member, inner) if (scalar := of(type(member))) is None else scalar(member) for member in value
        ]
        return f"[{inner}{f',{inner}'.join(rows)}{line}]"
    return _ENCODER.encode(value)
