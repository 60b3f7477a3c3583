"""The kinds of parameters of a query: a choice, a switch, a number, a size, a duration, a period, a name.

Owns: how each kind is parsed from text, which values it accepts. Must not know: queries, click, HTTP. Invariants: A
value that was parsed from text is validated like any other. A value is accepted unchanged or refused, never adjusted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from brickd.base.units import DURATIONS, parse_duration, parse_size, write_duration, write_size

_YEAR_2262 = 2**63 / 1e9  # the last year that nanoseconds since 1970 can express


class Parameter:
    """One parameter of any kind.

    Attributes:
        wanted: the accepted values, in words.
        key: the name of the parameter in a URL and as a long option; None: the name of its field, with - instead of _.
        short: the short option, if any.
        positional: whether it is an argument of the command line, not an option.
        several: whether it may be given more than once; if so, its value is a tuple.
    """

    several = False
    parse: Callable[[str], Any] = str  # raises ValueError for an invalid text

    def __init__(
        self,
        wanted: str,
        help: str = "",
        *,
        metavar: str | None = None,
        key: str | None = None,
        short: str = "",
        positional: bool = False,
    ) -> None:
        self.wanted = wanted
        self.help = help
        self.metavar = metavar
        self.key = key
        self.short = short
        self.positional = positional

    def takes(self, value: object) -> bool:
        """Whether the parameter accepts the value."""
        raise NotImplementedError

    def read(self, text: str) -> Any:
        """Parse a text. If the text is invalid, return it unchanged, so that `takes` refuses it."""
        try:
            return self.parse(text)
        except ValueError:
            return text

    def write(self, value: Any) -> str:
        """Format a value as a text that `read` parses."""
        return str(value)

    def expected(self, refused: Any) -> str:
        """Describe the accepted values, for the message about a refused value."""
        return self.wanted


class Choice(Parameter):
    """One word from a list."""

    def __init__(self, of: Sequence[str], help: str, **more: Any) -> None:
        super().__init__(f"one of {', '.join(of)}", help, **more)
        self.of = tuple(of)

    def takes(self, value: object) -> bool:
        """Whether the value is one of the words."""
        return value in self.of


class Choices(Choice):
    """Any number of words from a list."""

    several = True

    def takes(self, value: object) -> bool:
        """Whether the value is a tuple of these words."""
        return isinstance(value, tuple) and all(Choice.takes(self, each) for each in value)


class Switch(Parameter):
    """On or off."""

    def __init__(self, help: str, **more: Any) -> None:
        super().__init__("true or false", help, **more)

    def takes(self, value: object) -> bool:
        """Whether the value is a boolean."""
        return isinstance(value, bool)

    def read(self, text: str) -> Any:
        """Parse `true` or `false`."""
        return {"true": True, "false": False}.get(text, text)

    def write(self, value: Any) -> str:
        """Return `true` or `false`."""
        return "true" if value else "false"


def _digits(text: str) -> int:
    """Parse a text of at most 19 ASCII digits."""
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise ValueError
    return int(text)


class Whole(Parameter):
    """A whole number."""

    parse = staticmethod(_digits)

    def __init__(self, least: int, most: int | None, help: str, **more: Any) -> None:
        super().__init__(f"a whole number of {least} {'or more' if most is None else f'to {most}'}", help, **more)
        self.least = least
        self.most = most

    def takes(self, value: object) -> bool:
        """Whether the value is a whole number within the range."""
        if not isinstance(value, int) or isinstance(value, bool):
            return False
        return self.least <= value and (self.most is None or value <= self.most)


class ByteSize(Whole):
    """A number of bytes, whose text may have a unit that is a power of 1024."""

    parse = staticmethod(parse_size)

    def __init__(self, least: int, most: int, help: str, **more: Any) -> None:
        super().__init__(least, most, help, **{"metavar": "SIZE"} | more)
        range_text = f"{write_size(least)} to {write_size(most)}"
        self.wanted = f"a size of {range_text} (such as 512KiB, 64MiB, 64M, 1.5G; without a unit: bytes)"

    def write(self, value: Any) -> str:
        """Return the size in the largest unit in which it is a whole number."""
        return write_size(value)


class Number(Parameter):
    """A finite number."""

    parse: Callable[[str], Any] = float

    def __init__(self, least: float, most: float, help: str, **more: Any) -> None:
        super().__init__(f"a number of {least:g} to {most:g}", help, **more)
        self.least = least
        self.most = most

    def takes(self, value: object) -> bool:
        """Whether the value is a finite number within the range."""
        return (
            isinstance(value, int | float)
            and not isinstance(value, bool)
            and math.isfinite(value)
            and self.least <= value <= self.most
        )


class Duration(Number):
    """A duration in seconds, whose text may have a unit."""

    parse = staticmethod(parse_duration)

    def __init__(self, least: float, most: float, help: str, **more: Any) -> None:
        super().__init__(least, most, help, **{"metavar": "DURATION"} | more)
        range_text = f"{write_duration(least)} to {write_duration(most)}"
        self.wanted = f"a duration of {range_text} ({DURATIONS}; without a unit: seconds)"

    def write(self, value: Any) -> str:
        """Return the duration in the largest unit in which it is a whole number."""
        return write_duration(value)


class Period(Duration):
    """A recent period in seconds, or a word that stands for the whole time."""

    def __init__(self, everything: str, least: float, most: float, help: str, **more: Any) -> None:
        super().__init__(least, most, help, **more)
        self.everything = everything
        range_text = f"{write_duration(least)} to {write_duration(most)}"
        self.wanted = (
            f"a duration of {range_text} ({DURATIONS}; without a unit: seconds), or {everything!r} for all of the time"
        )

    def takes(self, value: object) -> bool:
        """Whether the value is the word, or a duration within the range."""
        return value == self.everything or super().takes(value)

    def write(self, value: Any) -> str:
        """Return the word, or the duration in seconds."""
        return str(value) if value == self.everything else f"{float(value)!r}".removesuffix(".0") + "s"


def _time(text: str) -> float:
    """Parse a time, as seconds since 1970."""
    from brickd.base.timestamps import parse_time  # takes 4 ms, which most commands do not need

    return parse_time(text)


class Time(Number):
    """A time, in seconds since 1970. Its text may be a time of the day, or a date and a time."""

    parse = staticmethod(_time)

    def __init__(self, help: str, **more: Any) -> None:
        super().__init__(0, _YEAR_2262, help, **{"metavar": "TIME"} | more)
        forms = "02:47, 02:47:30, 2026-11-27T02:47, 2026-11-27T02:47:30Z"
        self.wanted = f"a time (such as {forms}, or @ and seconds since 1970)"

    def write(self, value: Any) -> str:
        """Return the seconds since 1970."""
        return f"@{value!r}"

    def expected(self, refused: Any) -> str:
        """Return what to write instead: the two meanings of an ambiguous local time, or else the accepted formats."""
        from brickd.base.timestamps import UnclearTimeError

        try:
            _time(str(refused))
        except UnclearTimeError as unclear:
            return str(unclear)
        except ValueError:
            pass
        return self.wanted


class NumberOrDuration(Duration):
    """A whole number, or a duration with a unit, which becomes seconds as a float."""

    def __init__(self, least: float, most: float, help: str, **more: Any) -> None:
        super().__init__(least, most, help, **more)
        range_text = f"{write_duration(least)} to {write_duration(most)}"
        self.wanted = f"a whole number of 0 or more, or a duration of {range_text} ({DURATIONS})"

    def takes(self, value: object) -> bool:
        """Whether the value is a whole number, or a duration within the range."""
        return super().takes(value) if isinstance(value, float) else _NUMBER.takes(value)

    def read(self, text: str) -> Any:
        """Parse a whole number, or a duration with a unit."""
        return super().read(text) if text[-1:].isalpha() else _NUMBER.read(text)

    def write(self, value: Any) -> str:
        """Return the number, or the duration in the largest unit in which it is a whole number."""
        return super().write(value) if isinstance(value, float) else _NUMBER.write(value)


_NUMBER = Whole(0, None, "")


class Name(Parameter):
    """A name of any kind."""

    def takes(self, value: object) -> bool:
        """Whether the value is a text that is not empty."""
        return isinstance(value, str) and value != ""


class Names(Name):
    """Any number of names."""

    several = True

    def takes(self, value: object) -> bool:
        """Whether the value is a tuple of texts that are not empty."""
        return isinstance(value, tuple) and all(Name.takes(self, each) for each in value)
