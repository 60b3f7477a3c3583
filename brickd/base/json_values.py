"""The JSON values that brickd stores: they are encoded in pieces, and each is checked when it is decoded.

Owns: the checks of numbers, texts and lists. Must not know: files, the meaning of a value. Invariants: A check returns
its value, or raises ValueError with the value found and the value expected. Joining the pieces gives the complete
encoding.
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
_QUOTED_MAX = 200  # the limit of an error message, which may quote its input
_CONTAINERS_MAX = 1 << 22  # in memory, an empty container takes 24 times as much as in a file

Found = TypeVar("Found")


def require(holds: bool, expected: str, found: Any) -> None:
    """Raise ValueError if the condition does not hold."""
    if not holds:
        raise ValueError(f"expected {expected}, found {reprlib.repr(found)[:60]}")


def whole(value: Any, least: int = 0, most: int = U64_MAX) -> int:
    """Check that a value is a whole number within a range."""
    require(type(value) is int and least <= value <= most, f"a whole number of {least} to {most}", value)
    return int(value)


def number(value: Any) -> float:
    """Check that a value is a finite number."""
    require(type(value) in (int, float) and math.isfinite(value), "a number", value)
    return float(value)


def flag(value: Any) -> bool:
    """Check that a value is a boolean."""
    require(type(value) is bool, "true or false", value)
    return bool(value)


def text(value: Any) -> str:
    """Check that a value is a string."""
    require(isinstance(value, str), "a text", value)
    return str(value)


def unicode(value: Any) -> str:
    """Check that UTF-8 can encode a string. File names may contain characters that UTF-8 cannot encode."""
    text(value).encode()  # UnicodeEncodeError is a ValueError
    return str(value)


def limited(value: Sized, most: int) -> Any:
    """Check that a value has at most `most` parts."""
    require(len(value) <= most, f"a length of at most {most}", len(value))
    return value


def optional(value: Any, check: Callable[[Any], Found]) -> Found | None:
    """Check a value unless it is None."""
    return None if value is None else check(value)


def listed(value: Any, most: int) -> list[Any]:
    """Check that a value is a list of at most `most` parts."""
    require(isinstance(value, list), "a list", value)
    return list(limited(value, most))


def bits(value: Any, most: int) -> int:
    """Decode at most `most` bits from hexadecimal digits."""
    found = int(limited(text(value), most // 4), 16)
    require(found >= 0, "hexadecimal digits without a sign", value)
    return found


def parsed(body: bytes | str) -> Any:
    """Parse JSON. Refuse NaN and Infinity, which are not JSON although Python accepts them."""
    return json.loads(body, parse_constant=_refuse)


def document(body: bytes, most: int) -> Any:
    """Parse a JSON document, but refuse one that is too long or would take too much memory."""
    require(len(body) <= most, f"at most {most} bytes", len(body))
    containers = body.count(b"[") + body.count(b"{")
    require(containers <= _CONTAINERS_MAX, f"at most {_CONTAINERS_MAX} lists and objects", containers)
    return parsed(body)


@contextmanager
def validating() -> Iterator[None]:
    """Decode hostile input: any exception becomes a ValueError."""
    try:
        yield
    except RecursionError:
        raise ValueError("is nested too deeply") from None
    except Exception as error:  # also MemoryError, struct.error and zlib.error, because the input caused them
        quoted = str(error)[:_QUOTED_MAX]
        raise ValueError(f"has an invalid structure: {type(error).__name__}: {quoted}") from None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"expected a number, found {constant}")


# All calls share one encoder, because json.dumps would create an encoder at each call.
_ENCODER = json.JSONEncoder(separators=(",", ":"), allow_nan=False)


def plain(value: Any) -> str:
    """Encode a value as JSON without spaces."""
    return _ENCODER.encode(value)


def pieces(members: Mapping[str, Iterable[str]]) -> Iterator[str]:
    """Encode a JSON object in pieces. A large member is copied only when the pieces are joined.

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
