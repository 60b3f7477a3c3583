"""Problems: one table of their kinds, for every view that lists problems.

Owns: the kinds, their order, their sentences, the next command of each problem. Must not know: terminals, files, how
long a problem lasts. Invariants: Every problem names the next command. Problems of one kind in several workers of a
service are one problem. At most LISTED_MAX refused files are listed; the total number is given. Modules that format
findings are loaded only if there are findings.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from brickd.analysis.problem import WORKERS_MAX, Problem, merged
from brickd.analysis.problem_book import ENTRIES_MAX, Book, Entry, ended_with_its_workers, problem_document
from brickd.base.units import duration, plural
from brickd.datasources.world import DaemonStatus, World
from brickd.errors import SegmentOverBudget, SegmentRefused, SegmentUnopened
from brickd.model.worker_names import KnownNames, as_argument
from brickd.model.workers import Survey, Worker
from brickd.shm.losses import losses
from brickd.shm.removed_workers import RemovedWorker
from brickd.views import numerics_summary, removed_summary

if TYPE_CHECKING:
    from brickd.analysis.numerics.online_state import Compared, DivergentSite
    from brickd.analysis.timing.alarms import Alarm
    from brickd.analysis.timing.findings import StragglerVerdict
    from brickd.analysis.weights.verdicts import WeightsVerdict as JudgedWeights

LISTED_MAX = 64  # refused files that are listed

Found = Iterator[Problem]


class Seen(NamedTuple):
    """The data in which problems are found.

    Attributes:
        workers: the selected workers.
        slow: the stragglers among these workers; None if they were not compared.
        alarms: the alarms about individual workers.
        refused: the files that are not valid segments; empty if the query names workers.
        removed: the workers of the selected services whose segments were removed.
        compared: the comparison of tensors; None if nothing was compared.
        differing: the findings of that comparison about the selected workers; None if nothing was compared.
        called: the names of all workers.
        weighed: the comparison of weights.
        weights: the findings of that comparison about the selected workers; None if nothing was compared.
        living: the names of all live workers.
        book: the problem book of the daemon; None without a daemon.
    """

    workers: Sequence[Worker]
    daemon: DaemonStatus | None = None
    slow: StragglerVerdict | None = None
    alarms: Sequence[Alarm] | None = None
    refused: Sequence[SegmentRefused] = ()
    removed: Sequence[RemovedWorker] = ()
    compared: Compared | None = None
    differing: Sequence[DivergentSite] | None = None
    called: KnownNames = KnownNames({})
    weighed: Sequence[JudgedWeights] = ()
    weights: Sequence[dict[str, Any]] | None = None
    living: Collection[str] = ()
    book: Book | None = None

    @classmethod
    def of(cls, world: World, found: Survey, workers: Sequence[Worker], names: Sequence[str]) -> Self:
        """Collect the data."""
        judged, compared = world.stragglers(), world.compared()
        if compared is not None and not compared.since_ns:  # nothing was compared
            compared = None
        services, alarms = {worker.service for worker in workers}, world.alarms()
        mine = {worker.name for worker in workers}
        weighed = [each for each in world.weighed(found) if each.service in services]
        return cls(
            workers,
            world.daemon(),
            None if judged is None else judged.about(mine),
            None if alarms is None else [each for each in alarms if not mine.isdisjoint(each.workers)],
            () if names else found.refused,
            removed_summary.chosen(found, names),
            compared,
            None if compared is None else numerics_summary.about(compared, workers, partial=bool(names)),
            numerics_summary.called_now(found.workers),
            weighed,
            _weight_findings(weighed, workers, partial=bool(names)),
            living(found.workers),
            world.problem_book(),
        )


def _weight_findings(
    judged: Sequence[JudgedWeights], workers: Collection[Worker], *, partial: bool
) -> list[dict[str, Any]] | None:
    if not judged:
        return None
    from brickd.views import weights_summary

    return weights_summary.findings(judged, workers, partial=partial)


class Listed(NamedTuple):
    """The active problems as JSON, and separately the silenced problems."""

    problems: list[dict[str, Any]]
    silenced: list[dict[str, Any]]


def living(workers: Iterable[Worker]) -> frozenset[str]:
    """Return the names of the live workers."""
    return frozenset(worker.name for worker in workers if worker.reading.alive)


def active(seen: Seen, now_ns: int, active_ns: int | None = None) -> Listed:
    """Return the problems that were seen in the last `active_ns` nanoseconds, and the silenced ones.

    Without a daemon, return all.
    """
    found, of = Listed([], []), problems(seen)
    if seen.book is None:
        for problem in of:
            seen_ns = now_ns if problem.mark is None else problem.last_ns
            found.problems.append(problem_document(problem, problem.first_ns, seen_ns, None))
        return found
    for entry in active_entries(of, seen.book, seen.living, now_ns, active_ns):
        (found.silenced if entry.silenced(now_ns) else found.problems).append(entry.document())
    if seen.book.unkept:
        found.problems.append(problem_document(unkept_problem(seen.book.unkept), None, now_ns, None))
    return found


def active_entries(
    found: Iterable[Problem], book: Book, living: Collection[str], now_ns: int, active_ns: int | None = None
) -> list[Entry]:
    """Return the problems that were seen in the last `active_ns` nanoseconds, and all silenced ones."""
    active_ns = book.active_ns if active_ns is None else active_ns
    entries = [book.entry(problem, now_ns) for problem in found if not ended_with_its_workers(problem, living)]
    return [each for each in entries if each.silenced(now_ns) or now_ns - each.seen_ns <= active_ns]


def unkept_problem(number: int) -> Problem:
    """Return a problem that reports that the book is full.

    It is not added to the book, because the book would count it too.
    """
    what = plural(number, "problem has", "problems have")
    text = (
        f"{what} no room among the {ENTRIES_MAX:,} problems that the daemon follows, so there is no event and no alarm"
        " about them"
    )
    return Problem("daemon", None, (), text, "brickd workers", "unkept")


def problems(seen: Seen) -> list[Problem]:
    """Return all problems, the worst first."""
    return merged(each for kind in _KINDS for each in kind(seen))


def _differing_weights(seen: Seen) -> Found:
    for each in seen.weights or ():
        yield Problem("weights", each["service"], tuple(each["workers"]), f"weights: {each['text']}", each["command"])


def _differing_tensors(seen: Seen) -> Found:
    if not seen.differing:
        return
    from brickd.analysis.numerics.announce import command, headlines

    for finding, text in headlines(seen.differing, seen.called, time.time_ns()):
        workers = tuple(seen.called.name(finding.workers, uuid) for uuid in finding.named)
        first_ns, last_ns = finding.first.at_ns, finding.newest.at_ns
        following = command(finding, seen.called)
        yield Problem("numbers", finding.place.service, workers, text, following, "", last_ns, first_ns, last_ns)


def _uncounted(seen: Seen) -> Found:
    text = removed_summary.sentence(seen.removed)
    if text is not None:
        spans = removed_summary.summary(seen.removed)["unasked_spans"]
        yield Problem(
            "uncounted", None, (), text, "brickd prune" if seen.daemon is not None else "brickd up -d", mark=spans
        )


def _slow(seen: Seen) -> Found:
    if seen.slow is None:
        return
    for finding, text in seen.slow.headlines():
        service, worker, _ = finding.about
        following = f"brickd stragglers {as_argument(service)}"
        yield Problem("straggler", service, (worker,), text, following, first_ns=finding.since.at_ns)
    for each in seen.slow.waiting:
        following = f"brickd stragglers {as_argument(each.service)}"
        since_ns = each.since.at_ns
        yield Problem("straggler", each.service, (each.worker,), each.text, following, "processor", first_ns=since_ns)
    if not seen.slow.current:
        text = f"no worker is judged now: the daemon compared all workers last {duration(seen.slow.age_ns)} ago"
        yield Problem("daemon", None, (), text, "brickd events", "stragglers")


def _alarms(seen: Seen) -> Found:
    if not seen.alarms:
        return
    from brickd.analysis.timing.alarms import of_services

    for alarm in of_services(seen.alarms):
        if alarm.kind != "nan":  # `_born` reports these problems, which last longer than the alarm
            yield Problem(alarm.kind, alarm.service, alarm.workers, alarm.text, alarm.command)


def _born(seen: Seen) -> Found:
    if seen.compared is not None and seen.compared.births:
        from brickd.analysis.numerics import birth_alarms

        mine = {worker.reading.uuid for worker in seen.workers}
        births = {at: birth for at, birth in seen.compared.births.items() if at.worker in mine}
        yield from birth_alarms.problems(births, seen.called.names, time.time_ns())


def _off(seen: Seen) -> Found:
    off: dict[str, list[str]] = {}
    for worker in seen.workers:
        if worker.reading.alive and worker.reading.off:
            off.setdefault(worker.service, []).append(worker.name)
    for service, names in off.items():
        text = f"recording is off in {plural(len(names), 'worker')} of {service}"
        yield Problem("off", service, tuple(names), text, f"brickd set --recording on {as_argument(service)}")


def _without_a_daemon(seen: Seen) -> Found:
    if seen.daemon is not None:
        return
    if unread := sum(worker.reading.unread for worker in seen.workers):
        who = plural(unread, "worker records", "workers record")
        text = f"{who} single spans that no process reads: the reader was killed"
        yield Problem("unread", None, (), text, "brickd up -d", "spans")
    if thinned := sum(worker.reading.thinned_unowned for worker in seen.workers):
        who = plural(thinned, "worker records", "workers record")
        text = f"a daemon that was killed had changed which fingerprints {who}"
        yield Problem("unread", None, (), text, "brickd up -d", "fingerprints")


def _quarantined(seen: Seen) -> Found:
    if len(seen.refused) > LISTED_MAX:
        text = f"{len(seen.refused):,} files are quarantined"
        yield Problem("quarantined", None, (), text, "brickd doctor")
    for error in seen.refused[:LISTED_MAX]:
        # `prune` keeps files that cannot be opened. A file above the budget may belong to a live worker, so `prune` is
        # not suggested for it either.
        stays = isinstance(error, SegmentUnopened | SegmentOverBudget)
        following = "brickd doctor" if stays else "brickd prune --refused"
        yield Problem(
            "quarantined", None, (), f"{error.path} is quarantined: {error.reason}", following, str(error.path)
        )


def _daemon(seen: Seen) -> Found:
    daemon = seen.daemon
    if daemon is None:
        return
    if daemon.checkpoint_problem is not None:
        text = f"the daemon cannot save its state: {daemon.checkpoint_problem}"
        yield Problem("daemon", None, (), text, "brickd events", "checkpoint")
    if daemon.recording_problem is not None:
        text = f"the recording cannot be written: {daemon.recording_problem}"
        yield Problem("daemon", None, (), text, "brickd events", "recording")
    if daemon.metrics_problem is not None:
        text = f"the metrics cannot be written: {daemon.metrics_problem}"
        yield Problem("daemon", None, (), text, "brickd events", "metrics")
    if daemon.broken is not None:
        text = f"the daemon started without its saved state: {daemon.broken}"
        yield Problem("daemon", None, (), text, "brickd events", "broken", daemon.started_ns, daemon.started_ns)


def _dead(seen: Seen) -> Found:
    dead: dict[str, list[Worker]] = {}
    for worker in seen.workers:
        if not worker.reading.alive and not worker.reading.ended:
            dead.setdefault(worker.service, []).append(worker)
    for service, workers in dead.items():
        number = sum(worker.together for worker in workers)
        who = f"{workers[0].name} and {number - 1:,} more" if number > 1 else workers[0].name
        names = tuple(worker.name for worker in workers[:WORKERS_MAX])
        yield Problem("died", service, names, f"{who} died; the totals are kept", "brickd prune", mark=number)


def _lost(seen: Seen) -> Found:
    found = [(worker, loss) for worker in seen.workers for loss in losses(worker.reading, worker.ledger)]
    for worker, loss in sorted(found, key=lambda each: (not each[1].spans, -(each[1].amount or 0))):
        # A full table has no counter of losses. As long as the worker lives, the table stays full and the problem stays
        # active.
        mark = loss.amount if loss.amount is not None or worker.reading.alive else 0
        following = f"brickd inspect {as_argument(worker.name)}"
        yield Problem("lost", worker.service, (worker.name,), f"{worker.name}: {loss}", following, loss.kind, mark)


_KINDS: tuple[Callable[[Seen], Found], ...] = (
    _differing_weights,
    _differing_tensors,
    _uncounted,
    _born,
    _alarms,
    _slow,
    _off,
    _without_a_daemon,
    _quarantined,
    _daemon,
    _dead,
    _lost,
)
