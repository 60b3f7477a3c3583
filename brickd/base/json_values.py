"""JSON values that brickd stores: written piece by piece, checked one by one when read.

Owns: what a number, a text or a list may be before anything is made of it. Must not know: any file, what a value means.
Invariants: a check returns its value, or raises ValueError with the value found and the value expected; pieces of JSON
add up to what would be written of the whole at once.
"""

from __future__ import annotations

import json
import math
import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from contextlib import contextmanager
from typing import Any, NoReturn, TypeVar

U64_MAX = 2**64 - 1
I32_MAX = 2**31 - 1
_QUOTED_MAX = 200  # characters of an error that may quote what it met
_CONTAINERS_MAX = 1 << 22  # an empty one takes 24 times the memory that it takes in a file

Found = TypeVar("Found")


def require(holds: bool, expected: str, found: Any) -> None:
    """Raise ValueError unless it holds."""
    if not holds:
        raise ValueError(f"expected {expected}, found {reprlib.repr(found)[:60]}")


def whole(value: Any, least: int = 0, most: int = U64_MAX) -> int:
    """A whole number within a range."""
    require(type(value) is int and least <= value <= most, f"a whole number of {least} to {most}", value)
    return int(value)


def number(value: Any) -> float:
    """A finite number."""
    require(type(value) in (int, float) and math.isfinite(value), "a number", value)
    return float(value)


def flag(value: Any) -> bool:
    """True or false."""
    require(type(value) is bool, "true or false", value)
    return bool(value)


def text(value: Any) -> str:
    """A string."""
    require(isinstance(value, str), "a text", value)
    return str(value)


def unicode(value: Any) -> str:
    """A string that UTF-8 can encode, as all text of a segment; a file's name may be another."""
    text(value).encode()  # UnicodeEncodeError is a ValueError
    return str(value)


def limited(value: Sized, most: int) -> Any:
    """Require at most this many parts."""
    require(len(value) <= most, f"at most {most}", len(value))
    return value


def optional(value: Any, check: Callable[[Any], Found]) -> Found | None:
    """None, or what passes the check."""
    return None if value is None else check(value)


def listed(value: Any, most: int) -> list[Any]:
    """A list of at most this many parts."""
    require(isinstance(value, list), "a list", value)
    return list(limited(value, most))


def bits(value: Any, most: int) -> int:
    """At most this many bits, as hexadecimal digits."""
    found = int(limited(text(value), most // 4), 16)
    require(found >= 0, "no sign", value)
    return found


def parsed(body: bytes | str) -> Any:
    """Parse JSON without NaN and Infinity, which Python reads but JSON does not have."""
    return json.loads(body, parse_constant=_refuse)


def document(body: bytes, most: int) -> Any:
    """A JSON document within limits of its size and of the memory that it takes."""
    require(len(body) <= most, f"at most {most} bytes", len(body))
    containers = body.count(b"[") + body.count(b"{")
    require(containers <= _CONTAINERS_MAX, f"at most {_CONTAINERS_MAX} lists and objects", containers)
    return parsed(body)


@contextmanager
def validating() -> Iterator[None]:
    """Decode hostile input: turn any exception into a ValueError."""
    try:
        yield
    except RecursionError:
        raise ValueError("is nested too deeply") from None
    except Exception as error:  # MemoryError, struct.error, zlib.error included: the file made it happen
        quoted = str(error)[:_QUOTED_MAX]
        raise ValueError(f"has an invalid structure: {type(error).__name__}: {quoted}") from None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"expected a number, found {constant}")


# Not json.dumps, which makes one each time.
_ENCODER = json.JSONEncoder(separators=(",", ":"), allow_nan=False)


def plain(value: Any) -> str:
    """JSON of a value, without a space."""
    return _ENCODER.encode(value)


def pieces(members: Mapping[str, Iterable[str]]) -> Iterator[str]:
    """A JSON object, piece by piece: a large member is copied once, later.

    >>> "".join(pieces({"a": ["[1,", "2]"], "b": pieces({})}))
    '{"a":[1,2],"b":{}}'
    """
    yield "{"
    for number, (name, value) in enumerate(members.items()):
        yield ("," if number else "") + plain(name) + ":"
        yield from value
    yield "}"


def composed(members: Mapping[str, str]) -> str:
    """A JSON object of members whose values are complete JSON."""
    return "".join(pieces({name: (value,) for name, value in members.items()}))
