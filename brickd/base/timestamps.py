"""Timestamps in documents and on screens.

Owns: the formats of timestamps: RFC 3339 and local time. Must not know: the meaning of a time. Invariant: any number
can be formatted.
"""

import re
import time
from datetime import UTC, datetime, timedelta
from typing import NamedTuple


class Moment(NamedTuple):
    """A point in time on two clocks: `now_ns` on the monotonic clock, for differences, and `at_ns` since 1970."""

    now_ns: int
    at_ns: int

    @classmethod
    def now(cls) -> "Moment":
        """Return the present time."""
        return cls(time.monotonic_ns(), time.time_ns())


def rfc3339(ns: int) -> str:
    """Format a time since 1970, to the millisecond. A time outside of the calendar is shown as 1970.

    >>> rfc3339(1_700_000_000_123_456_789), rfc3339(2**63)
    ('2023-11-14T22:13:20.123Z', '2262-04-11T23:47:16.854Z')
    """
    return _moment(ns).isoformat(timespec="milliseconds").replace("+00:00", "Z")


_OF_DAY = re.compile(r"(\d{1,2}):(\d\d)(?::(\d\d))?")


class UnclearTimeError(ValueError):
    """A local time that exists twice or not at all, because clocks are changed at that time."""


def parse_time(text: str, now_s: float | None = None) -> float:
    """Parse a time as seconds since 1970. A time of day stands for the last such time that has passed, in local time.

    >>> parse_time("@12.5"), parse_time("1970-01-02T00:00Z"), parse_time("1970-01-01T01:00:00+01:00")
    (12.5, 86400.0, 0.0)
    >>> 0 <= time.time() - parse_time("02:47") < 90_000
    True

    Raises:
        UnclearTimeError: the local time exists twice, or not at all.
        ValueError: the text is not a time.
    """
    if text.startswith("@"):
        return float(text[1:])
    try:
        if (found := _OF_DAY.fullmatch(text)) is None:
            moment = datetime.fromisoformat(text)
            return moment.timestamp() if moment.tzinfo else _only(_instants(moment), moment)
        now_s = time.time() if now_s is None else now_s
        hour, minute, second = (int(part or 0) for part in found.groups())
        now = datetime.fromtimestamp(now_s).replace(fold=0)
        today = now.replace(hour=hour, minute=minute, second=second, microsecond=0)
        past = [each for each in _instants(today) if each <= now_s]
        if past or (today <= now and not _instants(today)):
            return _only(past, today)
        return _only(_instants(today - timedelta(days=1)), today - timedelta(days=1))
    except OverflowError as error:  # the first or the last day of the calendar
        raise ValueError(str(error)) from None


def _instants(naive: datetime) -> list[float]:
    """Return the times, in seconds since 1970, at which clocks show a local time.

    There is usually one. There are two if clocks are set back at that time, and none if they are set forward over it.
    """
    before, after = (naive.replace(fold=fold).timestamp() for fold in (0, 1))
    return [before] if before == after else [before, after] if before < after else []


def _only(instants: list[float], naive: datetime) -> float:
    """Return the only instant; raise UnclearTimeError if there are two, or none."""
    if len(instants) == 1:
        return instants[0]
    shown = " or ".join(naive.replace(fold=fold).astimezone().isoformat() for fold in (0, 1))
    if instants:
        raise UnclearTimeError(f"{shown}: this local time exists twice, because clocks were set back")
    raise UnclearTimeError(f"{shown}: this local time does not exist, because clocks were set forward")


def local(ns: int, now_ns: int, clock: str = "%H:%M") -> str:
    """Format a time since 1970 in local time, with its date if that is not today."""
    moment = _moment(ns).astimezone()
    is_today = moment.date() == _moment(now_ns).astimezone().date()
    return moment.strftime(clock if is_today else f"%Y-%m-%d {clock}")


def clock(at_s: float) -> str:
    """Format a time in seconds since 1970 as local time, to the second, with its date if that is not today."""
    return local(round(at_s * 1e9), time.time_ns(), "%H:%M:%S")


def local_clock(timestamp: str) -> str:
    """Format a timestamp of a document as `clock` does.

    >>> local_clock("2001-01-01T12:00:00.500Z") == clock(978350400.5)
    True
    """
    return clock(datetime.fromisoformat(timestamp).timestamp())


def local_times(began_ns: int, ended_ns: int, now_ns: int) -> str:
    """Format a period in local time, with seconds if its ends would look the same without seconds.

    >>> [local_times(0, ns, 0).count(":") for ns in (10 * 10**9, 90 * 10**9)]
    [4, 2]
    """
    ends = [local(ns, now_ns) for ns in (began_ns, ended_ns)]
    if ends[0] == ends[1]:
        ends = [local(ns, now_ns, "%H:%M:%S") for ns in (began_ns, ended_ns)]
    return " to ".join(ends)


def _moment(ns: int) -> datetime:
    try:
        return datetime.fromtimestamp(ns / 1e9, UTC)
    except (OverflowError, ValueError, OSError):
        return datetime.fromtimestamp(0, UTC)
