"""JSON out of parts that are JSON already.

Owns: how a document is written of which most was written before. Must not know: what the parts mean. Invariant: what is
composed is what would be written of the whole at once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

# Not json.dumps, which makes one each time.
_ENCODER = json.JSONEncoder(separators=(",", ":"), allow_nan=False)


def plain(value: Any) -> str:
    """JSON of a value, without a space."""
    return _ENCODER.encode(value)


def pieces(members: Mapping[str, Iterable[str]]) -> Iterator[str]:
    """An object of members whose values are pieces of JSON, piece by piece: one that is large is copied once, later.

    >>> "".join(pieces({"a": ["[1,", "2]"], "b": pieces({})}))
    '{"a":[1,2],"b":{}}'
    """
    yield "{"
    for number, (name, value) in enumerate(members.items()):
        yield ("," if number else "") + plain(name) + ":"
        yield from value
    yield "}"


def composed(members: Mapping[str, str]) -> str:
    """The same of members whose values are whole."""
    return "".join(pieces({name: (value,) for name, value in members.items()}))
