"""Formats numbers, counts, durations and tensors' names; parses durations, sizes and rates.

Owns: units, rounding, singular and plural. Must not know: what is measured, or where it is printed. Invariants: A
number always has the same format. A figure is rounded only once, from the exact number; ties are rounded away from
zero. If the rounded figure reaches the next unit, it is shown in that unit (999,950 ns is 1.0 ms, never 1000 µs). A
value and its negative differ only in the sign, and zero has no sign. None, NaN and infinities are shown as `-`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

Number = int | float | None

SECOND = 1_000_000_000  # ns
DURATIONS = "with ms, s, m or h"  # the units of `parse_duration`

_NOTHING = "-"
_NS = (
    (1, " ns"),
    (10**3, " µs"),
    (10**6, " ms"),
    (10**9, " s"),
    (60 * 10**9, " min"),
    (3600 * 10**9, " h"),
    (86400 * 10**9, " d"),
)
_DURATION = re.compile(r"((?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)(ms|s|m|h|)", re.ASCII)
_UNIT_SECONDS = {"h": 3_600, "m": 60, "s": 1, "": 1}  # `ms` is not here, because 1/1000 is not an exact float
_COUNTS = ((1, ""), (10**6, "M"), (10**9, "G"), (10**12, "T"), (10**15, "P"), (10**18, "E"))
_SIZE = re.compile(r"(\d{1,18}(?:\.\d{1,18})?)(?:B|([KMGT])(?:iB)?|)", re.ASCII | re.IGNORECASE)
_SIZE_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_RATE = re.compile(r"((?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?) ?([KMGTPE]?)", re.ASCII)
_BYTES = ((1, "B"), (2**10, "K"), (2**20, "M"), (2**30, "G"), (2**40, "T"), (2**50, "P"), (2**60, "E"))


def duration(ns: Number) -> str:
    """Format nanoseconds. A figure below 100 has one decimal, and a larger one has none.

    A figure in `ns` never has a decimal.

    >>> [duration(ns) for ns in (0, 850, 3_100_000, 17_000_000, 421_400, 42 * 10**9, 90 * 10**9, 10**18)]
    ['0 ns', '850 ns', '3.1 ms', '17.0 ms', '421 µs', '42.0 s', '1.5 min', '11,574 d']
    >>> [duration(ns) for ns in (99_949, 99_950, 999_499, 999_500, 3_050, -3_050, -0.0, None)]
    ['99.9 µs', '100 µs', '999 µs', '1.0 ms', '3.1 µs', '-3.1 µs', '0 ns', '-']
    """
    return _scaled(ns, _NS, decimal_below=100)


def parse_duration(text: str) -> float:
    """Parse a duration into seconds: a number with `ms`, `s`, `m` or `h`, or a number of seconds.

    Raises:
        ValueError: the text is not a duration, or is too large for a float.

    >>> [parse_duration(text) for text in ("500ms", "3s", "5m", "1.5h", "2.5", "0")]
    [0.5, 3.0, 300.0, 5400.0, 2.5, 0.0]
    """
    match = _DURATION.fullmatch(text)
    number, unit = (float(match[1]), match[2]) if match else (math.nan, "")
    seconds = number / 1_000 if unit == "ms" else number * _UNIT_SECONDS[unit]
    if not math.isfinite(seconds):
        raise ValueError(f"{text!r} is not a duration, expected a number with or without ms, s, m or h")
    return seconds


def write_duration(seconds: float) -> str:
    """Format a duration so that `parse_duration` can parse it. Use the largest unit that gives a whole number.

    >>> [write_duration(seconds) for seconds in (0.5, 3, 300, 5400, 86400, 2.5, 0.0001, 0)]
    ['500ms', '3s', '5m', '90m', '24h', '2500ms', '0.0001s', '0s']
    """
    for unit, number in (("h", seconds / 3_600), ("m", seconds / 60), ("s", seconds), ("ms", seconds * 1_000)):
        if number >= 1 and number == int(number) and parse_duration(text := f"{number:.0f}{unit}") == seconds:
            return text
    return f"{float(seconds)!r}s" if seconds else "0s"


def parse_size(text: str) -> int:
    """Parse a size into bytes: a number of bytes, or a number with a unit (a power of 1024) such as `M` or `MiB`.

    Raises:
        ValueError: the text is not a size, or not a whole number of bytes. `MB` is refused, because some people
        mean a
            million bytes by it.

    >>> [parse_size(text) for text in ("64MiB", "64m", "1.5K", "512B", "512", "0")]
    [67108864, 67108864, 1536, 512, 512, 0]
    """
    if match := _SIZE.fullmatch(text):
        number = float(match[1]) if "." in match[1] else int(match[1])
        size_bytes = number * _SIZE_UNITS[(match[2] or "").upper()]
        if size_bytes == int(size_bytes):
            return int(size_bytes)
    raise ValueError(f"{text!r} is not a size, expected a number with or without B, KiB, MiB, GiB or TiB")


def write_size(size_bytes: int) -> str:
    """Format a size so that `parse_size` can parse it. Use the largest unit that gives a whole number.

    >>> [write_size(n) for n in (0, 1000, 1024, 1536, 64 << 20, 1 << 40)]
    ['0', '1000', '1KiB', '1536', '64MiB', '1TiB']
    """
    for unit, size_unit in reversed(_SIZE_UNITS.items()):
        if size_bytes >= size_unit and size_bytes % size_unit == 0:
            return f"{size_bytes // size_unit}{unit + 'iB' if unit else ''}"
    return str(size_bytes)


def parse_rate(text: str, unit: str) -> float:
    """Parse a rate per second: a number, an optional K, M, G, T, P or E (powers of 1000), and an optional unit.

    Raises:
        ValueError: the text is not a rate.

    >>> [parse_rate(text, "FLOP/s") for text in ("989T", "9.89e14", "989 TFLOP/s", "1")]
    [989000000000000.0, 989000000000000.0, 989000000000000.0, 1.0]
    """
    if match := _RATE.fullmatch(text.removesuffix(unit)):
        return float(match[1]) * 1_000.0 ** " KMGTPE".index(match[2] or " ")
    raise ValueError(f"{text!r} is not a rate, expected a number with or without K, M, G, T, P or E, and {unit}")


def count(n: Number) -> str:
    """Format a count. A count below a million is shown with all its digits.

    A larger count is shown in a unit such as M. Then a figure below 100 has one decimal, and a larger one has none.

    >>> [count(n) for n in (0, 999, 1_234, 999_999, 1_200_000, 99_950_000, 999_500_000, 2**64, None)]
    ['0', '999', '1,234', '999,999', '1.2M', '100M', '1.0G', '18.4E', '-']
    """
    return _scaled(n, _COUNTS, decimal_below=100)


def durations(of: Iterable[Number]) -> Callable[[Number], str]:
    """Return a format for a column of durations. All use the unit of the longest one, and at most three decimals.

    >>> column = (1_542_000_000, 872_000_000, 26_440_000, 499_999, 0, None)
    >>> [durations(column)(ns) for ns in column]
    ['1.54 s', '0.872 s', '0.026 s', '<0.001 s', '0 s', '-']
    >>> [durations([850, 7])(ns) for ns in (850, 7)], durations([999_500])(999_500), durations([])(None)
    (['850 ns', '7 ns'], '1.00 ms', '-')
    """
    return _in_one_unit(of, _NS)


def counts(of: Iterable[Number]) -> Callable[[Number], str]:
    """Return a format for a column of counts, like `durations`.

    >>> column = (335e9, 73.9e9, 1_297_000_000, 20_000)
    >>> [counts(column)(n) for n in column], counts([1_234])(1_234)
    (['335G', '73.9G', '1.30G', '<0.001G'], '1,234')
    """
    return _in_one_unit(of, _COUNTS)


def many(n: int, one: str, more: str | None = None) -> str:
    """Format a count as `count` does, and add its noun.

    >>> many(1, "span"), many(1_200_000, "span"), many(0, "name was", "names were")
    ('1 span', '1.2M spans', '0 names were')
    """
    return f"{count(n)} {noun(n, one, more)}"


def size(size_bytes: Number) -> str:
    """Format bytes in units of 1024. A figure below 10 has one decimal, and a larger one has none.

    >>> [size(n) for n in (0, 1023, 1024, 10_188, 10_189, 1_048_063, 1_048_064, 71 * 2**30, 2**64, None)]
    ['0B', '1,023B', '1.0K', '9.9K', '10K', '1,023K', '1.0M', '71G', '16E', '-']
    """
    return _scaled(size_bytes, _BYTES, decimal_below=10)


def percent(value: Number) -> str:
    """Format a percentage. It has one decimal below 10, and none above. A small percentage is never shown as 0 %.

    >>> [percent(value) for value in (0, 0.04, 0.07, 9.94, 9.96, 18.2, 100, -0.0, -11.4, 12_345.6, None)]
    ['0 %', '<0.1 %', '0.1 %', '9.9 %', '10 %', '18 %', '100 %', '0 %', '-11 %', '12,346 %', '-']
    """
    if value is None or _is_no_number(value):
        return _NOTHING
    if value == 0:
        return "0 %"
    sign = "-" if value < 0 else ""
    tenths = _tenths(*abs(value).as_integer_ratio(), decimal_below=10)
    return f"{sign}{_figure(tenths, decimal_below=10)} %" if tenths else f"{sign}<0.1 %"


def relative(error: Number) -> str:
    """Format a relative error with two digits, because a sketch is not more accurate. Show a tiny error as `<1e-6`.

    >>> [relative(error) for error in (3.14e-4, 8e-3, 0.25, 12.0, 1234.5, 0.0, 1e-7, None)]
    ['3.1e-4', '8e-3', '0.25', '12', '1.2e3', '<1e-6', '<1e-6', '-']
    """
    if error is None or _is_no_number(error):
        return _NOTHING
    if error < 1e-6:
        return "<1e-6"
    if 0.00995 <= error < 99.5:
        return f"{error:.2g}"
    mantissa, exponent = f"{error:.1e}".split("e")
    return f"{mantissa.removesuffix('.0')}e{int(exponent)}"


def _in_one_unit(of: Iterable[Number], units: Sequence[tuple[int, str]]) -> Callable[[Number], str]:
    largest = max((abs(value) for value in of if value is not None and not _is_no_number(value)), default=0)
    unit, name = max(each for each in units if each == units[0] or 2_000 * largest >= 1_999 * each[0])

    def shown(value: Number) -> str:
        if value is None or _is_no_number(value):
            return _NOTHING
        scaled = value / unit
        if unit == 1 or not value:
            return f"{scaled:,.0f}{name}"
        if abs(scaled) < 0.0005:
            return f"{'-' if value < 0 else ''}<0.001{name}"
        decimals = sum(abs(scaled) < bound for bound in (0.9995, 9.995, 99.95))
        return f"{scaled:,.{decimals}f}{name}"

    return shown


def _scaled(value: Number, units: Sequence[tuple[int, str]], decimal_below: int) -> str:
    if value is None or _is_no_number(value):
        return _NOTHING
    top, bottom = abs(value).as_integer_ratio()
    below, tenths, name = 0, _tenths(top, bottom, 0), units[0][1]
    for (unit, _), (next_unit, next_name) in pairwise(units):
        if tenths * unit < 10 * next_unit:
            break
        below, tenths, name = decimal_below, _tenths(top, bottom * next_unit, decimal_below), next_name
    sign = "-" if value < 0 and tenths else ""
    return f"{sign}{_figure(tenths, below)}{name}"


def _tenths(top: int, bottom: int, decimal_below: int) -> int:
    """Return top/bottom in tenths. Below the bound it is rounded to a tenth, and above to a whole number."""
    tenths = (20 * top + bottom) // (2 * bottom)
    return tenths if tenths < 10 * decimal_below else 10 * ((2 * top + bottom) // (2 * bottom))


def _figure(tenths: int, decimal_below: int) -> str:
    whole, tenth = divmod(tenths, 10)
    return f"{whole}.{tenth}" if whole < decimal_below else f"{whole:,}"


def _is_no_number(value: int | float) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def or_none(number: int) -> int | None:
    """Return the index of a layer or an expert as documents have it: None instead of -1.

    >>> or_none(3), or_none(-1)
    (3, None)
    """
    return number if number >= 0 else None


def called(name: str, layer: int | None, expert: int | None) -> str:
    """Return a tensor's name in its model, with the indexes of its layer and expert.

    >>> called("layers.*.mlp.weight", 3, None), called("norm", -1, -1), called("w", 3, 7)
    ('layers.3.mlp.weight', 'norm', 'w, layer 3, expert 7')
    >>> called("layers.*.experts.*.up", 3, 5)
    'layers.3.experts.5.up'
    """
    more = ""
    for what, number in (("layer", layer), ("expert", expert)):
        if number is None or number < 0:
            continue
        if "*" in name:
            name = name.replace("*", str(number), 1)
        else:
            more += f", {what} {number}"
    return name + more


NO_WORKERS = "no workers: no process of this user is recording (try: brickd demo)"
NONE_RECORDED = "no workers: the recording has none"


def noun(n: int, one: str, more: str | None = None) -> str:
    """Return the noun for the number `n`.

    >>> noun(1, "span"), noun(0, "span"), noun(2, "it was", "they were")
    ('span', 'spans', 'they were')
    """
    return one if n == 1 else more or f"{one}s"


def plural(n: int, one: str, more: str | None = None) -> str:
    """Format a number with all its digits, and add its noun.

    >>> plural(1, "name was", "names were"), plural(1_234_567, "span")
    ('1 name was', '1,234,567 spans')
    """
    return f"{n:,} {noun(n, one, more)}"


def listed(names: Sequence[str], most: int = 3) -> str:
    """List the first few names, and say how many more there are.

    >>> listed(["api/0", "api/1"], most=2), listed(["api/0", "api/1", "api/2", "api/3"], most=2)
    ('api/0, api/1', 'api/0, api/1 and 2 more')
    """
    return ", ".join(names[:most]) + (f" and {len(names) - most:,} more" if len(names) > most else "")
