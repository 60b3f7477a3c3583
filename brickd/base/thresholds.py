"""Thresholds of alarms: one table of names, defaults, ranges and meanings.

Owns: the table, and how a value is read from text, from a file and from a saved state. Must not know: how a threshold
is used, who may change it. Invariants: Every value is within its range, whatever its source. A refusal names the
threshold, the value seen and the value expected.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

from brickd.base.units import DURATIONS, SECOND, parse_duration, write_duration
from brickd.errors import WrongQuestion

DEFAULT = "default"
_FILE_BYTES_MAX = 1 << 16


class _Row(NamedTuple):
    """A row of the table of thresholds; `unit` is "s" for a duration."""

    unit: str
    least: float
    most: float
    meaning: str


def _row(default: float, unit: str, least: float, most: float, meaning: str) -> float:
    value: float = field(default=default, metadata={"row": _Row(unit, least, most, meaning)})
    return value


@dataclass(frozen=True, slots=True)
class Thresholds:
    """The values of all thresholds."""

    stuck_min: float = _row(
        30, "s", 1, 86_400, "A span is reported as stuck only after it has been open for this time."
    )
    stuck_times: float = _row(
        20,
        "times",
        1,
        1e6,
        "A span is reported as stuck only after it has been open for this many times the p99 of its brick.",
    )
    stuck_first: float = _row(
        600,
        "s",
        1,
        604_800,
        "If the p99 of its brick is unknown, a span is reported as stuck after its worker has completed no span for"
        " this time.",
    )
    memory_over: float = _row(
        600, "s", 300, 86_400, "A worker is reported after its memory has grown, and never shrunk, for this time."
    )
    memory_growth: float = _row(
        1, "MiB/min", 0.01, 1e6, "A worker is reported only if its memory grows by at least this rate."
    )
    slower_percent: float = _row(
        30,
        "percent",
        1,
        1e4,
        "A worker is reported as slower than before only if its calls take at least this percentage longer.",
    )
    slower_over: float = _row(
        300,
        "s",
        60,
        3_600,
        "A worker is compared with its own past only after it has recorded for this time plus one minute.",
    )
    straggler_percent: float = _row(
        1,
        "percent",
        0.1,
        1e4,
        "A worker is named as a straggler only if its calls take at least this percentage longer than the median.",
    )
    straggler_cost_percent: float = _row(
        0.1,
        "percent",
        0.1,
        100,
        "A worker is named as a straggler only if its slowness costs at least this percentage of its time.",
    )
    waits_percent: float = _row(
        5,
        "percent",
        0.1,
        1e4,
        "A worker is reported as waiting for a processor only if its share of time spent waiting exceeds that of the"
        " median worker by at least this many percentage points.",
    )
    waits_alone_percent: float = _row(
        25,
        "percent",
        0.1,
        1e4,
        "A worker that may use only one processor, or whose control group is throttled, is reported if it waits for"
        " a processor for this percentage of its time. In a service of one or two workers, each is reported at twice"
        " this percentage.",
    )
    nan_for: float = _row(
        600,
        "s",
        1,
        604_800,
        "The alarm `nan` of a worker ends when the worker has computed no NaN or infinity from finite inputs for"
        " this time.",
    )
    active_for: float = _row(
        600, "s", 1, 604_800, "A problem is active as long as its cause was seen within this time."
    )
    unproven_for: float = _row(
        60,
        "s",
        1,
        604_800,
        "An event reports that a class of evidence is unproven after it has been unproven for this time.",
    )

    def ns(self, name: str) -> int:
        """Return a duration in nanoseconds."""
        seconds: float = getattr(self, name)
        return round(seconds * SECOND)

    def changed(self) -> dict[str, float]:
        """Return the values that are not the defaults."""
        mine = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: value for name, value in mine.items() if value != getattr(_DEFAULTS, name)}

    def documents(self) -> list[dict[str, Any]]:
        """Return all thresholds as JSON documents."""
        return [
            {
                "name": each.name,
                "value": getattr(self, each.name),
                "default": each.default,
                "unit": row(each.name).unit,
                "meaning": row(each.name).meaning,
            }
            for each in fields(self)
        ]

    @classmethod
    def of(cls, saved: Mapping[str, float]) -> Thresholds:
        """Restore thresholds from the result of `changed`. Thresholds of a later version of brickd are ignored."""
        return cls().with_({name: value for name, value in saved.items() if name in NAMES})

    def with_(self, values: Mapping[str, float]) -> Thresholds:
        """Return a copy with other values.

        Raises:
            WrongQuestion: a threshold does not exist, or a value is not within its range.
        """
        for name, value in values.items():
            here = row(name)
            if type(value) not in (int, float) or not here.least <= value <= here.most:
                raise WrongQuestion(f"{name} is {value!r}, expected {_expected(here)}")
        return replace(self, **values)


_DEFAULTS = Thresholds()
NAMES = tuple(each.name for each in fields(Thresholds))


def row(name: str) -> _Row:
    """Return the row of a threshold; raise WrongQuestion if there is no such threshold."""
    for each in fields(Thresholds):
        if each.name == name:
            found: _Row = each.metadata["row"]
            return found
    raise WrongQuestion(f"no threshold {name}, expected one of {', '.join(NAMES)}")


def written(value: float, unit: str) -> str:
    """Format a value so that `assigned` can parse it.

    >>> written(90, "s"), written(20, "times"), written(2.5, "%")
    ('90s', '20', '2.5')
    """
    return write_duration(value) if unit == "s" else f"{value:g}"


def assignments(of: Thresholds) -> list[str]:
    """Return assignments that `assigned` turns back into these thresholds."""
    return [f"{name}={written(value, row(name).unit)}" for name, value in of.changed().items()]


def _expected(row: _Row) -> str:
    least, most = written(row.least, row.unit), written(row.most, row.unit)
    if row.unit != "s":
        return f"a number of {least} to {most} ({row.unit})"
    return f"a duration of {least} to {most} ({DURATIONS}; without a unit: seconds)"


def assigned(texts: Iterable[str], before: Thresholds) -> Thresholds:
    """Return the thresholds after assignments such as `stuck_min=45s`; the value `default` restores the default.

    Raises:
        WrongQuestion: a text is not an assignment, or its value is invalid.
    """
    values = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise WrongQuestion(f"{text!r} is not an assignment, expected NAME=VALUE, such as stuck_min=45s")
        values[name.strip()] = _value(name.strip(), value.strip())
    return before.with_(values)


def _value(name: str, text: str) -> float:
    here = row(name)
    if text == DEFAULT:
        value: float = getattr(_DEFAULTS, name)
        return value
    try:
        return parse_duration(text) if here.unit == "s" else float(text)
    except ValueError:
        raise WrongQuestion(f"{name} is {text!r}, expected {_expected(here)}") from None


def of_file(path: Path) -> dict[str, float]:
    """Read thresholds from a TOML file, in which a value is a number or a text such as "45s".

    Raises:
        WrongQuestion: the file cannot be read or is invalid.
    """
    try:
        with path.open("rb") as file:
            content = file.read(_FILE_BYTES_MAX + 1)
        if len(content) > _FILE_BYTES_MAX:
            raise WrongQuestion(f"is larger than {_FILE_BYTES_MAX} bytes, the limit of a file of thresholds")
        found = tomllib.loads(content.decode())
        values = {name: _value(name, value) if isinstance(value, str) else value for name, value in found.items()}
        Thresholds().with_(values)
    except OSError as error:
        raise WrongQuestion(f"{path}: cannot be read: {error.strerror} (check the path, its owner and mode)") from None
    except WrongQuestion as error:
        raise WrongQuestion(f"{path}: {error}") from None
    except (ValueError, RecursionError) as error:  # invalid TOML or UTF-8
        raise WrongQuestion(f'{path}: {error}; expected lines such as stuck_min = "45s"') from None
    return values
