"""The kinds of parameters of a query: a choice, a switch, a number, a duration, a name.

Owns: how each kind is read from text, which values it takes. Must not know: any query, click, HTTP. Invariants: a value
that was read from text is validated like any other; a value is taken as it is or refused, never changed into one that
fits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from brickd.base.units import parse_duration, write_duration


class Parameter:
    """One parameter of any kind.

    Attributes:
        wanted: which values it takes, in words.
        key: its name in a URL, and its long option; None: the name of its field, with - for _.
        short: its short option, if it has one.
        positional: whether a command line gives it without any option.
        several: whether it may be given more than once; its value is then a tuple.
    """

    several = False

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
        """Whether it takes the value."""
        raise NotImplementedError

    def read(self, text: str) -> Any:
        """The value that the text means; the text itself if it means none."""
        return text

    def write(self, value: Any) -> str:
        """The text of a value, as `read` reads it."""
        return str(value)


class Choice(Parameter):
    """One of a few words."""

    def __init__(self, of: Sequence[str], help: str, **more: Any) -> None:
        super().__init__(f"one of {', '.join(of)}", help, **more)
        self.of = tuple(of)

    def takes(self, value: object) -> bool:
        """Whether it is one of them."""
        return value in self.of


class Choices(Choice):
    """Any number of a few words."""

    several = True

    def takes(self, value: object) -> bool:
        """Whether each is one of them."""
        return isinstance(value, tuple) and all(Choice.takes(self, each) for each in value)


class Switch(Parameter):
    """On or off."""

    def __init__(self, help: str, **more: Any) -> None:
        super().__init__("true or false", help, **more)

    def takes(self, value: object) -> bool:
        """Whether it is a truth value."""
        return isinstance(value, bool)

    def read(self, text: str) -> Any:
        """By its two words."""
        return {"true": True, "false": False}.get(text, text)

    def write(self, value: Any) -> str:
        """As one of its two words."""
        return "true" if value else "false"


class Whole(Parameter):
    """A whole number."""

    def __init__(self, least: int, most: int | None, help: str, **more: Any) -> None:
        super().__init__(f"a whole number of {least} {'or more' if most is None else f'to {most}'}", help, **more)
        self.least = least
        self.most = most

    def takes(self, value: object) -> bool:
        """Whether it is one within the range."""
        if not isinstance(value, int) or isinstance(value, bool):
            return False
        return self.least <= value and (self.most is None or value <= self.most)

    def read(self, text: str) -> Any:
        """From plain digits, as many as 64 bits have."""
        return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else text


class Number(Parameter):
    """A finite number."""

    def __init__(self, least: float, most: float, help: str, **more: Any) -> None:
        super().__init__(f"a number of {least:g} to {most:g}", help, **more)
        self.least = least
        self.most = most

    def takes(self, value: object) -> bool:
        """Whether it is one within the range."""
        return (
            isinstance(value, int | float)
            and not isinstance(value, bool)
            and math.isfinite(value)
            and self.least <= value <= self.most
        )

    def read(self, text: str) -> Any:
        """As Python reads one."""
        try:
            return float(text)
        except ValueError:
            return text


class Duration(Number):
    """A duration, in seconds; its text may have a unit."""

    def __init__(self, least: float, most: float, help: str, **more: Any) -> None:
        super().__init__(least, most, help, **{"metavar": "DURATION"} | more)
        range_text = f"{write_duration(least)} to {write_duration(most)}"
        self.wanted = f"a duration of {range_text} (such as 500ms, 3s, 5m, 1h; without a unit: seconds)"

    def read(self, text: str) -> Any:
        """By its unit."""
        try:
            return parse_duration(text)
        except ValueError:
            return text

    def write(self, value: Any) -> str:
        """In the largest unit that fits."""
        return write_duration(value)


class Name(Parameter):
    """A name of any kind."""

    def takes(self, value: object) -> bool:
        """Whether it is a text with characters."""
        return isinstance(value, str) and value != ""


class Names(Name):
    """Any number of names."""

    several = True

    def takes(self, value: object) -> bool:
        """Whether each is a text with characters."""
        return isinstance(value, tuple) and all(Name.takes(self, each) for each in value)
