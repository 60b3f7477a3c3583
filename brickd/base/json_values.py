"""JSON values that brickd stores: encoded in pieces, checked one by one when decoded.

Owns: the checks of numbers, texts and lists. Must not know: files, what a value means. Invariants: a check returns its
value, or raises ValueError with the value found and the value expected; the joined pieces are the complete encoding.
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
_QUOTED_MAX = 200  # characters of an error message, because it may quote its input
_CONTAINERS_MAX = 1 << 22  # an empty container takes 24 times as much memory as in the file

Found = TypeVar("Found")


def require(holds: bool, expected: str, found: Any) -> None:
    """Raise ValueError unless the condition holds."""
    if not holds:
        raise ValueError(f"expected {expected}, found {reprlib.repr(found)[:60]}")


def whole(value: Any, least: int = 0, most: int = U64_MAX) -> int:
    """Check a whole number within a range."""
    require(type(value) is int and least <= value <= most, f"a whole number of {least} to {most}", value)
    return int(value)


def number(value: Any) -> float:
    """Check a finite number."""
    require(type(value) in (int, float) and math.isfinite(value), "a number", value)
    return float(value)


def flag(value: Any) -> bool:
    """Check a boolean."""
    require(type(value) is bool, "true or false", value)
    return bool(value)


def text(value: Any) -> str:
    """Check a string."""
    require(isinstance(value, str), "a text", value)
    return str(value)


def unicode(value: Any) -> str:
    """Check that UTF-8 can encode a string. File names may contain other characters."""
    text(value).encode()  # UnicodeEncodeError is a ValueError
    return str(value)


def limited(value: Sized, most: int) -> Any:
    """Check that a value has at most `most` parts."""
    require(len(value) <= most, f"at most {most}", len(value))
    return value


def optional(value: Any, check: Callable[[Any], Found]) -> Found | None:
    """Check a value unless it is None."""
    return None if value is None else check(value)


def listed(value: Any, most: int) -> list[Any]:
    """Check a list of at most `most` parts."""
    require(isinstance(value, list), "a list", value)
    return list(limited(value, most))


def bits(value: Any, most: int) -> int:
    """Decode at most `most` bits from hexadecimal digits."""
    found = int(limited(text(value), most // 4), 16)
    require(found >= 0, "no sign", value)
    return found


def parsed(body: bytes | str) -> Any:
    """Parse JSON; refuse NaN and Infinity, which only Python accepts."""
    return json.loads(body, parse_constant=_refuse)


def document(body: bytes, most: int) -> Any:
    """Parse a JSON document within limits of its size and memory."""
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
    except Exception as error:  # includes MemoryError, struct.error and zlib.error: the input caused them
        quoted = str(error)[:_QUOTED_MAX]
        raise ValueError(f"has an invalid structure: {type(error).__name__}: {quoted}") from None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"expected a number, found {constant}")


# json.dumps would create an encoder at each call.
_ENCODER = json.JSONEncoder(separators=(",", ":"), allow_nan=False)


def plain(value: Any) -> str:
    """Encode a value as JSON without spaces."""
    return _ENCODER.encode(value)


def pieces(members: Mapping[str, Iterable[str]]) -> Iterator[str]:
    """Encode a JSON object in pieces: a large member is copied only when they are joined.

    >>> "".join(pieces({"a": ["[1,", "2]"], "b": pieces({})}))
    '{"a":[1,2],"b":{}}'
    """
    yield "{"
    for number, (name, value) in enumerate(members.items()):
        yield ("," if number else "") + plain(name) + ":"
        yield from value
    yield "}"


def composed(members: Mapping[str, str]) -> str:
    """Encode a JSON object whose members are already JSON."""
    return "".join(pieces({name: (value,) for name, value in members.items()}))
