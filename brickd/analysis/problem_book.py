"""The book of problems: when each problem began, when its cause was last seen, which problems are silenced.

Owns: when a problem begins, is active and ends; the silences; how the book is written as a document. Must not know: how
a problem is found, where the book is saved, screens. Invariants: A book is immutable, so any thread may read it. The
size of a book is bounded, and problems for which there is no room are counted. If a problem ends because its workers
have ended, it has not recovered.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, get_args

from brickd.analysis.problem import WORKERS_MAX, Kind, Problem
from brickd.base.json_values import U64_MAX, flag, listed, optional, require, text, unicode, whole
from brickd.base.timestamps import rfc3339
from brickd.base.units import SECOND, duration, plural

# A condition may be absent in one check and return in the next, so a problem does not end immediately. After a restart,
# the daemon also needs some time to find stragglers again.
AWAY_NS = 120 * SECOND
KEPT_NS = 3_600 * SECOND  # how long an ended problem stays in the book
ENTRIES_MAX = 512

# Kinds that describe the current state of a process. Such a problem ends when the process ends.
_OF_LIVING = frozenset({"weights", "numbers", "nan", "stuck", "memory", "slower", "straggler", "off"})
# Kinds whose cause is seen again when a counter grows. The counter starts again from 0 if the workers change.
_COUNTED = frozenset({"died", "lost", "uncounted"})
# Kinds for which a silence covers only the workers that the problem names when it is silenced. The silence ends if
# another worker gets the same problem.
_OF_NAMED = frozenset({"weights", "numbers", "nan"})

WORKERS_ENDED = "its workers ended"
INCOMPARABLE = "no worker is left to compare with"
GONE = "its condition is no longer true"

State = Literal["began", "recovered", "ended", "unsilenced"]


class Entry(NamedTuple):
    """A problem in the book; times are since 1970.

    Attributes:
        problem: the latest state of the problem.
        ended_ns: when the problem ended; None while it is active.
        notified: whether the start of the problem was sent, so that its end must be sent too.
        silenced_until_ns: when the silence ends; None if the problem is not silenced.
        covered: the workers that the problem named when it was silenced.
    """

    problem: Problem
    since_ns: int
    seen_ns: int
    ended_ns: int | None = None
    notified: bool = False
    silenced_until_ns: int | None = None
    covered: tuple[str, ...] = ()

    def silenced(self, now_ns: int) -> bool:
        """Whether the problem is silenced at this time."""
        return self.silenced_until_ns is not None and now_ns < self.silenced_until_ns

    def document(self) -> dict[str, Any]:
        """The entry as JSON."""
        return problem_document(self.problem, self.since_ns, self.seen_ns, self.silenced_until_ns)


class Change(NamedTuple):
    """A change of a problem, and the reason.

    Attributes:
        news: False if the problem began earlier and its start is sent only now.
        send: whether the change must be sent to the targets of alarms.
    """

    state: State
    entry: Entry
    why: str = ""
    send: bool = False
    news: bool = True


def problem_document(
    problem: Problem, since_ns: int | None, seen_ns: int | None, silenced_until_ns: int | None
) -> dict[str, Any]:
    """Return the JSON of a problem; an unknown time is None."""
    until = silenced_until_ns
    return {
        "id": problem.id,
        "kind": problem.kind,
        "service": problem.service,
        "workers": list(problem.workers),
        "text": problem.text,
        "command": problem.command,
        "since": None if since_ns is None else rfc3339(since_ns),
        "seen": None if seen_ns is None else rfc3339(seen_ns),
        "silenced_until": None if until is None else rfc3339(until),
    }


def ended_with_its_workers(problem: Problem, living: Collection[str]) -> bool:
    """Whether all of the problem's workers have ended."""
    return problem.kind in _OF_LIVING and bool(problem.workers) and not any(map(living.__contains__, problem.workers))


class Book(NamedTuple):
    """All known problems, by id.

    Attributes:
        unkept: the number of problems for which the last check had no room.
        active_ns: how long a problem stays active after its cause was last seen.
    """

    entries: Mapping[str, Entry] = MappingProxyType({})
    unkept: int = 0
    active_ns: int = 600 * SECOND  # the default of the threshold `active_for`

    def entry(self, problem: Problem, now_ns: int) -> Entry:
        """Return the entry of a problem that was just found."""
        before = self.entries.get(problem.id)
        if before is None:
            seen_ns = now_ns if problem.last_ns is None else min(now_ns, problem.last_ns)
            first_ns = seen_ns if problem.first_ns is None else min(seen_ns, problem.first_ns)
            return Entry(problem, first_ns, seen_ns)
        old, new = before.problem.mark, problem.mark
        again = new is None or old is None or new > old
        return before._replace(problem=problem, seen_ns=now_ns if again else min(now_ns, before.seen_ns))

    def updated(
        self,
        found: Iterable[Problem],
        living: Collection[str],
        now_ns: int,
        *,
        equal: Collection[str] = (),
        sends: bool = False,
    ) -> tuple[Book, list[Change]]:
        """Return the book after a check, and the changes.

        Args:
            found: every problem that this check found.
            living: the names of the live workers.
            now_ns: the time of the check, since 1970.
            equal: the names of the workers whose weights equal those of a replica.
            sends: whether changes are sent to targets of alarms.
        """
        entries, here, unkept = dict(self.entries), set[str](), 0
        for problem in found:
            if ended_with_its_workers(problem, living):
                continue
            entry = self.entry(problem, now_ns)
            if problem.id not in entries and len(entries) >= ENTRIES_MAX and not _make_room(entries, here):
                unkept += 1
                continue
            entries[problem.id] = entry
            here.add(problem.id)
        changes: list[Change] = []
        for id_, looked in entries.items():
            before = self.entries.get(id_)
            # The clock may have been set back after the problem was seen.
            entry = _with_silence(looked._replace(seen_ns=min(now_ns, looked.seen_ns)), now_ns, changes)
            if id_ not in here and entry.problem.kind in _COUNTED:
                entry = entry._replace(problem=entry.problem._replace(mark=0))
            why = self._why_over(entry, living, now_ns, equal, here=id_ in here)
            if why is None:
                entries[id_] = _active(before, entry, now_ns, changes, sends=sends)
            else:
                entries[id_] = _over(before, entry, why, now_ns, changes)
        kept = {id_: each for id_, each in entries.items() if id_ in here or not _is_forgotten(each, now_ns)}
        return Book(MappingProxyType(kept), unkept, self.active_ns), changes

    def _why_over(
        self, entry: Entry, living: Collection[str], now_ns: int, equal: Collection[str], *, here: bool
    ) -> str | None:
        if ended_with_its_workers(entry.problem, living):
            return WORKERS_ENDED
        unseen_ns = now_ns - entry.seen_ns
        if unseen_ns > self.active_ns:
            return f"its cause was not seen again for {duration(self.active_ns)}"
        if here or unseen_ns < AWAY_NS:
            return None
        return INCOMPARABLE if entry.problem.kind == "weights" and not set(entry.problem.workers) <= {*equal} else GONE

    def silenced(self, id_: str, until_ns: int | None) -> Book:
        """Return the book with a problem silenced until `until_ns`; None ends the silence."""
        entry = self.entries[id_]
        covered = () if until_ns is None else entry.problem.workers
        return self._replace(
            entries=MappingProxyType(
                {**self.entries, id_: entry._replace(silenced_until_ns=until_ns, covered=covered)}
            ),
        )

    def rows(self) -> list[list[Any]]:
        """Return the rows for a checkpoint."""
        return [entry_row(each) for each in self.entries.values()]

    @classmethod
    def of(cls, rows: Any) -> Book:
        """Decode the output of `rows`. Any other input raises an exception, which may be of any class."""
        entries = [entry_of(row) for row in listed(rows, ENTRIES_MAX)]
        return cls(MappingProxyType({each.problem.id: each for each in entries}))


_PROBLEM = ("kind", "service", "workers", "text", "command", "subject", "mark", "first_ns", "last_ns")
_ENTRY = ("since_ns", "seen_ns", "ended_ns", "notified", "silenced_until_ns", "covered")


def _make_room(entries: dict[str, Entry], here: Collection[str]) -> bool:
    """Of the ended problems that this check did not find, drop the one that ended first.

    Return False if there is none.
    """
    over = [
        (each.ended_ns, id_)
        for id_, each in entries.items()
        if each.ended_ns is not None and id_ not in here and each.silenced_until_ns is None
    ]
    if over:
        del entries[min(over)[1]]
    return bool(over)


def _with_silence(entry: Entry, now_ns: int, changes: list[Change]) -> Entry:
    """End the silence of an entry if its time is over, or if another worker now has the problem."""
    if entry.silenced_until_ns is None:
        return entry
    news = [name for name in entry.problem.workers if name not in entry.covered]
    if not entry.silenced(now_ns):
        why = "the silence has expired"
    elif news and entry.problem.kind in _OF_NAMED:
        who = (
            f"{news[0]} and {plural(len(news) - 1, 'more worker')} now have" if len(news) > 1 else f"{news[0]} now has"
        )
        why = f"{who} the same problem"
    else:
        return entry
    entry = entry._replace(silenced_until_ns=None, covered=())
    changes.append(Change("unsilenced", entry, why))
    return entry


def _active(before: Entry | None, entry: Entry, now_ns: int, changes: list[Change], *, sends: bool) -> Entry:
    """Return the active entry. The start of a problem is sent once, but not while it is silenced."""
    begins = before is None or before.ended_ns is not None
    send = sends and not entry.notified and not entry.silenced(now_ns)
    since_ns = now_ns if begins and before is not None else entry.since_ns
    entry = entry._replace(ended_ns=None, since_ns=since_ns, notified=entry.notified or send)
    if begins or send:
        changes.append(Change("began", entry, send=send, news=begins))
    return entry


def _over(before: Entry | None, entry: Entry, why: str, now_ns: int, changes: list[Change]) -> Entry:
    """Return the ended entry. The end of a problem is sent if its start was sent."""
    if before is None:  # the problem is not in the book: its cause was seen before the book began
        return entry._replace(ended_ns=entry.seen_ns)
    if before.ended_ns is not None:
        return entry
    state: State = "ended" if why in (WORKERS_ENDED, INCOMPARABLE) else "recovered"
    changes.append(Change(state, entry, why, send=entry.notified and not entry.silenced(now_ns)))
    return entry._replace(ended_ns=now_ns, notified=False)


def _is_forgotten(entry: Entry, now_ns: int) -> bool:
    """Whether to drop a problem that the check did not find."""
    over_ns = 0 if entry.ended_ns is None else now_ns - entry.ended_ns
    return over_ns > KEPT_NS and entry.silenced_until_ns is None


def entry_row(entry: Entry) -> list[Any]:
    """Return an entry as a row for a checkpoint."""
    return [*(getattr(entry.problem, name) for name in _PROBLEM), *(getattr(entry, name) for name in _ENTRY)]


def entry_of(row: Any) -> Entry:
    """Decode the output of `entry_row`. Any other input raises an exception, which may be of any class."""
    (
        kind, service, workers, said, command, subject, mark, first_ns, last_ns,
        since_ns, seen_ns, ended_ns, notified, until_ns, covered,
    ) = row  # fmt: skip
    require(kind in get_args(Kind), "a kind of problem", kind)
    problem = Problem(
        kind,
        optional(service, unicode),
        _names(workers),
        text(said),
        text(command),
        text(subject),
        *(optional(each, whole) for each in (mark, first_ns, last_ns)),
    )
    times = whole(since_ns), whole(seen_ns), optional(ended_ns, whole)
    return Entry(
        problem, *times, flag(notified), optional(until_ns, lambda ns: whole(ns, most=U64_MAX)), _names(covered)
    )


def _names(of: Any) -> tuple[str, ...]:
    return tuple(unicode(each) for each in listed(of, WORKERS_MAX))
