"""The parts shared by all views: the answer, the chosen workers and period, the first keys of a document.

Owns: the first keys, the choices, the notes next to a document. Must not know: individual views, who asks. Invariants:
If only other users have segments, the answer names these users. Segments of other users never change a document or an
exit code.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from brickd.base.timestamps import local, local_times, rfc3339
from brickd.base.units import NO_WORKERS, NONE_RECORDED, SECOND, duration, plural, write_duration
from brickd.base.users import others_have
from brickd.datasources.world import Source, World
from brickd.errors import BrickdError, NoDaemon
from brickd.model.survey_snapshot import EVERY_NS
from brickd.model.workers import Survey, Worker, select
from brickd.query.queries import HasPeriod, is_of_the_day
from brickd.query.query import MINUTE_S, OVER, START

if TYPE_CHECKING:
    from brickd.model.day_slots import DaySlot

Document = dict[str, Any]


class Answer(NamedTuple):
    """A document, and notes for the user (`words`)."""

    document: Document
    words: tuple[str, ...] = ()


class ChosenWorkers(NamedTuple):
    """The survey, the chosen workers, and notes about the other workers."""

    survey: Survey
    workers: list[Worker]
    words: tuple[str, ...]


class Counted(NamedTuple):
    """Workers whose readings contain the records of a period.

    Attributes:
        over: the length of the period, as in the query; None if the query gives a begin and an end, or a time.
        length_ns: the real length of the period; None if the period began when each worker started.
        words: why the real period differs from the period in the query.
        began_ns, ended_ns: if the period is of the last day, its real begin and end, since 1970, else None. The workers
            of such a period are sums of services.
        many: the number of workers in that period.
    """

    workers: list[Worker]
    over: str | None = START
    length_ns: int | None = None
    words: tuple[str, ...] = ()
    began_ns: int | None = None
    ended_ns: int | None = None
    many: int | None = None

    @property
    def summed(self) -> bool:
        """Whether the workers are sums of services."""
        return self.began_ns is not None

    def document(self) -> Document:
        """The keys of the document that describe the period."""
        began, ended = (None if ns is None else rfc3339(ns) for ns in (self.began_ns, self.ended_ns))
        return {"over": self.over, "over_ns": self.length_ns, "from": began, "to": ended}


class Sourced(Protocol):
    """A source of data for documents."""

    @property
    def source(self) -> Source:
        """The source of the data."""
        ...


def begun(world: Sourced) -> Document:
    """The first keys of every document."""
    return {"schema_version": 1, "source": world.source}


def no_workers(world: Sourced) -> str:
    """Why no workers are shown."""
    return NONE_RECORDED if world.source == "recording" else NO_WORKERS


def chosen(world: World, names: Sequence[str], of_day: PeriodSlot | None = None) -> ChosenWorkers:
    """Choose the named workers, or all workers if no name is given.

    Raises:
        NoSuchWorker: no worker and no service has one of the names.
    """
    found = world.survey()
    services = {each.service for each in found.removed} | (set() if of_day is None else of_day.services)
    workers = select(found.workers, names, foreign=found.foreign, services=services)
    return ChosenWorkers(found, workers, found.words + foreign_words(found))


def counted(world: World, found: ChosenWorkers, query: HasPeriod, of_day: PeriodSlot | None) -> Counted:
    """Return the chosen workers with what they recorded in a period.

    The default (`over` is None) is the last 60 seconds if there are windows, else the time since each worker's start.

    Raises:
        NoDaemon: the query names a period, but there is no daemon, so there are no windows.
    """
    over = query.over
    if of_day is not None:
        return _of_the_day(found, query, of_day, world.at_ns())
    if over == START:
        return Counted(found.workers)
    seconds = MINUTE_S if over is None else float(over)
    length = OVER.write(seconds)
    window = world.window(found.survey, found.workers, round(seconds * SECOND))
    if window is not None:
        words = () if over is None else _other_length(length, round(seconds * SECOND), window.length_ns)
        return Counted(window.workers, length, window.length_ns, words)
    if over is None:
        return Counted(found.workers)
    if world.source == "shared memory":
        raise NoDaemon(
            f"the totals of the last {length} need a daemon that has run for that time"
            f" (start one: brickd up -d; or use --over {START})"
        )
    raise BrickdError(f"there is 1 snapshot of the workers, expected 2 to count the last {length}: use --over {START}")


class AskedPeriod(NamedTuple):
    """The period in a query, in words and since 1970."""

    text: str
    began_ns: int
    ended_ns: int


class PeriodSlot(NamedTuple):
    """The content of a period of the last day, and the period in the query."""

    slot: DaySlot
    period: AskedPeriod

    @property
    def services(self) -> set[str]:
        """The services that recorded anything."""
        return services_of(self.slot)


def services_of(slot: DaySlot) -> set[str]:
    """Return the services that recorded anything in a slot."""
    return {each.reading.service for each in slot.totals.values()}


def of_services(slot: DaySlot, names: Sequence[str]) -> list[Worker]:
    """Return the sums of the named services, or of all services if no name is given."""
    from brickd.model.day_slots import as_workers  # a status without a period does not wait for this module

    return [each for each in as_workers(slot) if not names or each.service in names]


def require_services(found: ChosenWorkers, names: Sequence[str]) -> None:
    """Raise BrickdError if a name is that of a worker, because the last day has only sums of services."""
    if others := sorted({worker.name for worker in found.workers} & set(names)):
        raise BrickdError(
            f"the last day is kept by service: {others[0]} is a worker, expected a service (or use --over 60s;"
            f" brickd history {others[0]} adds up the bricks of the worker)"
        )


def day_of(world: World, query: HasPeriod) -> PeriodSlot | None:
    """Return the work of a query's period in the last day; None if a window answers the query."""
    if not is_of_the_day(query):
        return None
    period = period_of(world, query)
    slot = world.day(period.began_ns, period.ended_ns)
    if slot is not None:
        return PeriodSlot(slot, period)
    if world.source == "daemon" and ends_now(query):  # the daemon has just started: its window is all there is
        return None
    raise nothing_kept(world, period.text)


def period_of(world: World, query: HasPeriod) -> AskedPeriod:
    """Return the period in a query."""
    over, now_ns = 0.0 if query.over in (None, START) else float(query.over or 0), world.at_ns()
    if query.since is not None:
        began_ns = round(query.since * SECOND)
        ended_ns = now_ns if query.until is None else round(query.until * SECOND)
        text = local_times(began_ns, ended_ns, now_ns)
    else:
        ended_ns = now_ns if query.at is None else round(query.at * SECOND)
        began_ns = ended_ns - round(over * SECOND)
        text = f"the last {write_duration(over)}"
        if query.at is not None:
            text = f"{write_duration(over)} before {local(ended_ns, now_ns)}" if over else local(ended_ns, now_ns)
    return AskedPeriod(text, began_ns, ended_ns)


def nothing_kept(world: World, text: str) -> BrickdError:
    """Return the error for a period of which nothing is stored."""
    if world.source == "shared memory":
        return NoDaemon(f"nothing is kept of {text}, because no daemon runs (start one: brickd up -d)")
    kept = "only what was recorded"
    if world.source == "daemon":
        kept = "48 hours back, as far as the daemon ran (brickd history --over 48h)"
    return BrickdError(f"nothing is kept of {text}, expected a time within: {kept}")


def ends_now(query: HasPeriod) -> bool:
    """Whether a query's period ends now."""
    return query.at is None and query.since is None


def past_time(world: World, query: HasPeriod) -> int | None:
    """Return the past time at which a query's period ends, in ns since 1970; None if the period ends now."""
    ends = query.at if query.at is not None else query.until
    ends_ns = None if ends is None else round(ends * SECOND)
    return None if ends_ns is None or ends_ns >= world.at_ns() else ends_ns


def _of_the_day(found: ChosenWorkers, query: HasPeriod, of_day: PeriodSlot, now_ns: int) -> Counted:
    """Return what the chosen services recorded in a period of the last day."""
    slot = of_day.slot
    require_services(found, query.names)
    workers = of_services(slot, query.names)
    words = other_period(of_day.period, slot, now_ns)
    if slot.folded:
        paths = plural(slot.folded, "call path")
        words += (f"{paths} with little time had no room in the file, and are counted as the brick other, or left out",)
    many = sum(not query.names or service in query.names for service, _ in slot.lost)
    over = query.over if isinstance(query.over, float | int) else None
    asked = None if over is None else OVER.write(over)
    return Counted(workers, asked, slot.covered_ns, words, slot.began_ns, slot.ended_ns, many)


def other_period(period: AskedPeriod, slot: DaySlot, now_ns: int) -> tuple[str, ...]:
    """Explain why the counted period differs from the period in the query; () if the two are nearly equal."""
    most_ns = max(EVERY_NS, slot.longest_ns)
    missing_ns = slot.ended_ns - slot.began_ns - slot.covered_ns
    ends = abs(slot.began_ns - period.began_ns), abs(slot.ended_ns - period.ended_ns)
    asked_ns = period.ended_ns - period.began_ns
    if max(*ends, missing_ns) > most_ns:
        words = "only {} is kept"
    elif asked_ns and slot.covered_ns > asked_ns + EVERY_NS:
        words = f"{{}} is counted, because a slot of that time has {duration(slot.longest_ns)}"
    else:
        return ()
    counted = f"{local_times(slot.began_ns, slot.ended_ns, now_ns)} ({duration(slot.covered_ns)})"
    return (f"{period.text}: {words.format(counted)}",)


def _other_length(over: str, asked_ns: int, length_ns: int) -> tuple[str, ...]:
    """Explain why a window is shorter or longer than the period in the query; () if its length is right."""
    if abs(asked_ns - length_ns) < SECOND:
        return ()
    why = f"a window begins at the nearest snapshot, and a snapshot is taken every {EVERY_NS // SECOND} s"
    return (f"over {over} counts the last {duration(length_ns)}: {why}",)


def foreign_words(found: Survey) -> tuple[str, ...]:
    """If all segments belong to other users, name these users."""
    if found.foreign and not (found.workers or found.refused or found.removed):
        return (others_have(found.foreign),)
    return ()
