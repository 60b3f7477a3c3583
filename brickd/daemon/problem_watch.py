"""The daemon's problem book: snapshots update it, users silence problems in it, and its changes become events.

Owns: when the book and the history of workers and problems are updated, which changes of the book become events, and
the requests to silence a problem. Must not know: how a problem is found, how it is shown, where alarms go. Invariants:
A change of the book is saved immediately. Snapshots and requests never overwrite each other's changes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from brickd.analysis.problem import Problem
from brickd.analysis.problem_book import Book, Change, Entry
from brickd.base.timestamps import local
from brickd.base.units import SECOND, duration
from brickd.datasources.world import World
from brickd.errors import NoSuchProblem
from brickd.model.event_log import LogEvent
from brickd.model.survey_snapshot import Snapshot
from brickd.model.workers import Survey, Worker
from brickd.query.orders import Silencing
from brickd.state.daemon_state import Memory
from brickd.views.problems import Seen, active_entries, living, problems, unkept_problem

# The kinds of problems whose start becomes an event here. For all other kinds, another module already logs the start.
_REPORTED_HERE = ("lost", "unread")

KEEP_NS = 60 * SECOND  # a daemon that is killed loses the history of at most this time


class ProblemWatch:
    """Takes snapshots, and keeps the book in the daemon's state.

    Args:
        send: receives the changes that are alarms; None without targets.
        record: receives the problems that began and that the book did not have; None without a flight recorder.
        keep: makes the daemon save its state soon.
    """

    def __init__(
        self,
        world: World,
        memory: Memory,
        log_event: LogEvent,
        keep: Callable[[], object],
        send: Callable[[Sequence[Change]], object] | None = None,
        record: Callable[[Sequence[Problem]], object] | None = None,
    ) -> None:
        self._world, self._memory, self._log_event = world, memory, log_event
        self._keep, self._send, self._record = keep, send, record
        self._lock = threading.Lock()
        self._looked = False
        self._kept_ns = 0  # when the history was last saved

    def book(self) -> Book:
        """Return the current book."""
        return self._memory.problems._replace(active_ns=self._memory.thresholds.ns("active_for"))

    def take(self, snapshot: Snapshot) -> None:
        """Look for problems in a snapshot, and report changes."""
        self._look(snapshot.survey, snapshot.at_ns)

    def _look(self, survey: Survey, at_ns: int) -> None:
        workers = survey.workers
        seen = Seen.of(self._world, survey, workers, ())
        found = problems(seen)
        equal = {each.name for service in seen.weighed for each in service.workers if each.state == "equal"}
        with self._lock:
            before = self.book()
            book, changes = before.updated(found, living(workers), at_ns, equal=equal, sends=self._send is not None)
            self._memory.problems = book
            self._keep_history(workers, active_entries(found, book, living(workers), at_ns), book, at_ns)
        for change in changes:
            self._report(change)
        if self._send is not None:
            self._send([change for change in changes if change.send])
        if self._record is not None:
            began = [change.entry.problem for change in changes if change.state == "began"]
            self._record([problem for problem in began if problem.id not in before.entries])
        if changes or not 0 <= at_ns - self._kept_ns < KEEP_NS:
            self._kept_ns = at_ns
            self._keep()

    def _keep_history(self, workers: Sequence[Worker], shown: list[Entry], book: Book, at_ns: int) -> None:
        """Keep the workers and problems that a status shows now."""
        history = self._memory.history
        if book.unkept:
            problem = unkept_problem(book.unkept)
            before = history.problems.present.get(problem.id)
            shown.append(Entry(problem, at_ns if before is None else before.value.since_ns, at_ns))
        self._memory.history = history.updated(workers, shown, at_ns, continues=self._looked)
        self._looked = True

    def silence(self, order: Silencing) -> list[dict[str, Any]]:
        """Begin or end a silence if the order names a problem. Return the silenced problems."""
        now_ns = time.time_ns()
        if order.id is not None:
            until_ns = None if order.off else now_ns + round(order.length * 1e9)
            if order.id not in self.book().entries:  # the problem may have begun after the last look
                self._look(self._world.survey(), now_ns)
            with self._lock:
                if order.id not in self.book().entries:
                    raise NoSuchProblem(f"no problem {order.id} (brickd status lists them)")
                self._memory.problems = self.book().silenced(order.id, until_ns)
                entry = self.book().entries[order.id]
            self._report_silence(entry, until_ns, now_ns)
            self._keep()
        return [each.document() for each in self.book().entries.values() if each.silenced(now_ns)]

    def _report_silence(self, entry: Entry, until_ns: int | None, now_ns: int) -> None:
        id_, text = entry.problem.id, entry.problem.text
        if until_ns is None:
            self._event("unsilenced", entry, f"{id_} is no longer silenced: {text}")
        else:
            self._event("silenced", entry, f"{id_} is silenced until {local(until_ns, now_ns)}: {text}")

    def _report(self, change: Change) -> None:
        entry, problem = change.entry, change.entry.problem
        if change.state == "unsilenced":
            self._event("unsilenced", entry, f"{problem.id} is no longer silenced ({change.why}): {problem.text}")
        elif change.state != "began":
            lasted = duration(max(0, entry.seen_ns - entry.since_ns))
            self._event("problem_ended", entry, f"{problem.id} ended after {lasted}, {change.why}: {problem.text}")
        elif change.news and problem.kind in _REPORTED_HERE:
            self._event("problem", entry, f"{problem.id} {problem.text}")

    def _event(self, kind: str, entry: Entry, text: str) -> None:
        problem = entry.problem
        worker = problem.workers[0] if len(problem.workers) == 1 else None
        self._log_event(kind, text, service=problem.service, worker=worker, command=problem.command, problem=problem.id)
