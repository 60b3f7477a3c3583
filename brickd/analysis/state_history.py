"""The workers and problems of the last two days: which were there at a past time.

Owns: in which periods a daemon looked, the fields of a past worker, how the history is written in a checkpoint. Must
not know: how workers and problems are found, documents. Invariants: A time in which no daemon looked is unknown, and
so is a time from which something was forgotten. The history is immutable, so any thread may read it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, get_args

from brickd.analysis.problem import Kind
from brickd.analysis.problem_book import Entry, entry_of, entry_row
from brickd.base.json_values import U64_MAX, listed, optional, require, unicode, whole
from brickd.model.survey_snapshot import EVERY_NS
from brickd.model.timeline import KEPT_NS, PAST_MAX, PRESENT_MAX, Fact, Spell, Timeline, Value
from brickd.model.workers import Worker, WorkerState, state_of

GAP_NS = 3 * EVERY_NS  # between two looks; after a longer pause, the time in between is unknown
PERIODS_MAX = 64
PIDS = 1 << 31

_KINDS: Sequence[Kind] = get_args(Kind)


class PastWorker(NamedTuple):
    """A worker as it was at a past time; `together` is the number of workers, above 1 for a sum of dead workers."""

    name: str
    service: str
    uuid: str
    state: WorkerState
    together: int
    pid: int | None
    started_ns: int

    @classmethod
    def of(cls, worker: Worker) -> PastWorker:
        """Return a worker of now, to keep."""
        reading = worker.reading
        # A hostile worker's numbers may be out of range, and must not make the checkpoint invalid.
        pid = pid if 0 < (pid := reading.pid or reading.header["pid"]) < PIDS else None
        started_ns = min(max(0, reading.header["started_ns"]), U64_MAX)
        return cls(worker.name, worker.service, reading.uuid, state_of(reading), worker.together, pid, started_ns)

    @property
    def key(self) -> str:
        """What identifies the worker, or the sum of workers."""
        return self.uuid if self.together == 1 else f"/{self.name}"


class PastState(NamedTuple):
    """The workers, and the active problems, the worst first, at a past time."""

    workers: list[PastWorker]
    problems: list[Entry]
    silenced: list[Entry]


class WatchedPeriod(NamedTuple):
    """A period in which a daemon looked, from its first look to its last one; times are since 1970."""

    began_ns: int
    ended_ns: int


class StateHistory(NamedTuple):
    """The history. `periods` are in the order in which the daemon looked."""

    periods: tuple[WatchedPeriod, ...] = ()
    workers: Timeline[PastWorker] = Timeline()
    problems: Timeline[Entry] = Timeline()

    def updated(
        self, workers: Iterable[Worker], shown: Iterable[Entry], at_ns: int, *, continues: bool
    ) -> StateHistory:
        """Return the history after a look.

        Args:
            workers: all workers.
            shown: the active problems, silenced ones included.
            at_ns: the time of the look.
            continues: False for the first look of a daemon.
        """
        last_ns = self.periods[-1].ended_ns if self.periods else 0
        if last_ns - GAP_NS < at_ns < last_ns:  # another thread has looked since then
            return self
        of_workers, of_problems = self.workers, self.problems
        if at_ns < last_ns:  # the clock was set back, so these times happen twice
            of_workers, of_problems = of_workers.unknown_until(last_ns), of_problems.unknown_until(last_ns)
        goes_on = continues and bool(self.periods) and 0 <= at_ns - last_ns <= GAP_NS
        period = WatchedPeriod(self.periods[-1].began_ns if goes_on else at_ns, at_ns)
        earlier = self.periods[:-1] if goes_on else self.periods
        # A worker that is new in this look did not live at the look before, whatever it says about its start.
        earliest_ns = last_ns if goes_on else 0
        facts = [Fact(each.key, each, _since(each, earliest_ns, at_ns)) for each in map(PastWorker.of, workers)]
        return StateHistory(
            (*(each for each in earlier if each.ended_ns >= at_ns - KEPT_NS), period)[-PERIODS_MAX:],
            of_workers.updated(facts, at_ns, PastWorker.__eq__),
            of_problems.updated((Fact(each.problem.id, each, each.since_ns) for each in shown), at_ns, _alike),
        )

    def at(self, at_ns: int) -> PastState | None:
        """Return the state at a time; None if it is unknown."""
        if not any(each.began_ns <= at_ns <= each.ended_ns for each in self.periods) and not self._is_recent(at_ns):
            return None
        workers, entries = self.workers.at(at_ns), self.problems.at(at_ns)
        if workers is None or entries is None:
            return None
        entries.sort(key=lambda each: _KINDS.index(each.problem.kind))
        return PastState(
            sorted(workers, key=lambda each: (each.service, each.name)),
            [each for each in entries if each.silenced_until_ns is None],
            [each for each in entries if each.silenced_until_ns is not None],
        )

    def _is_recent(self, at_ns: int) -> bool:
        """Whether a time is so soon after the last look that the next look is not late."""
        return bool(self.periods) and 0 <= at_ns - self.periods[-1].ended_ns <= GAP_NS

    def plain(self) -> dict[str, Any]:
        """Return the history for a checkpoint."""
        return {
            "periods": list(map(list, self.periods)),
            "workers": _plain(self.workers, list),
            "problems": _plain(self.problems, entry_row),
        }

    @classmethod
    def of(cls, document: Any) -> StateHistory:
        """Decode the output of `plain`. Any other input raises an exception, which may be of any class."""
        periods = [
            WatchedPeriod(whole(began), whole(ended)) for began, ended in listed(document["periods"], PERIODS_MAX)
        ]
        workers = _timeline(document["workers"], _worker, lambda each: each.key)
        return cls(tuple(periods), workers, _timeline(document["problems"], entry_of, lambda each: each.problem.id))


def _since(worker: PastWorker, earliest_ns: int, at_ns: int) -> int:
    return max(worker.started_ns, earliest_ns) if worker.state == "live" else at_ns


def _alike(one: Entry, other: Entry) -> bool:
    """Whether two entries are the same problem of the same workers. The counts in the text may differ."""
    silenced = one.silenced_until_ns is not None, other.silenced_until_ns is not None
    return (one.since_ns, one.problem.workers) == (other.since_ns, other.problem.workers) and len(set(silenced)) == 1


def _plain(of: Timeline[Value], row: Callable[[Value], list[Any]]) -> list[Any]:
    spells = [[each.began_ns, each.ended_ns, row(each.value)] for each in (*of.past, *of.present.values())]
    return [of.complete_ns, spells]


def _timeline(found: Any, value_of: Callable[[Any], Value], key_of: Callable[[Value], str]) -> Timeline[Value]:
    complete_ns, rows = found
    spells = []
    for began_ns, ended_ns, row in listed(rows, PAST_MAX + PRESENT_MAX):
        value = value_of(row)
        spells.append(Spell(key_of(value), value, whole(began_ns), optional(ended_ns, whole)))
    present = {each.key: each for each in spells if each.ended_ns is None}
    past = tuple(each for each in spells if each.ended_ns is not None)
    require(len(past) <= PAST_MAX and len(present) <= PRESENT_MAX, "a bounded history", len(spells))
    return Timeline(MappingProxyType(present), past, whole(complete_ns))


def _worker(row: Any) -> PastWorker:
    name, service, uuid, state, together, pid, started_ns = row
    require(state in get_args(WorkerState), "a worker's state", state)
    worker = unicode(name), unicode(service), unicode(uuid), state, whole(together, 1)
    return PastWorker(*worker, optional(pid, whole), whole(started_ns))
