"""The part of a status about a past time of a daemon: the workers and problems of that time.

Owns: the entries of past workers and problems, and the notes about what is not known. Must not know: totals, screens.
Invariants: Nothing of now is shown as if it were of the past time. What is not known is null, and never an empty list.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from brickd.analysis.problem_book import Entry
from brickd.analysis.state_history import PastState, PastWorker
from brickd.base.timestamps import local, rfc3339
from brickd.datasources.world import World
from brickd.model.workers import Worker
from brickd.views.common import Document
from brickd.views.workers import entry, unknown_entry

# What a daemon does not keep of a past time.
_UNKEPT = (
    *("ledger", "removed", "stragglers", "waiting", "judged_age_ns", "alarms", "diverged", "weights", "numerics"),
    "evidence",
)
# The facts about a worker that do not change while it lives.
_LASTING = ("index", "coordinates", "segment", "configured", "clock")


class PastStatus(NamedTuple):
    """The keys of the document about the past time, and the notes."""

    document: Document
    words: tuple[str, ...]


def of_past(world: World, at_ns: int, now: Sequence[Worker], names: Collection[str]) -> PastStatus:
    """Return what is known of a past time about these services, or about all.

    `now` are the workers of now, which complete the entries of the same workers.
    """
    daemon, past, when = world.daemon(), world.past(at_ns), local(at_ns, world.at_ns(), "%H:%M:%S")
    document = {
        "daemon": None if daemon is None else daemon.document(),
        **dict.fromkeys(_UNKEPT),
        **dict.fromkeys(("workers", "problems", "silenced")),
    }
    if past is None:
        why = "the daemon did not run at that time, or had no room to keep them"
        return PastStatus(document, (f"the workers and problems of {when} are not known: {why}",))
    words = f"workers and problems are those of {when}; their counts and comparisons of that time are not kept"
    return PastStatus({**document, **_known(past, now, names)}, (words,))


def _known(past: PastState, now: Sequence[Worker], names: Collection[str]) -> Document:
    current = {worker.reading.uuid: worker for worker in now if worker.together == 1}
    return {
        "workers": [_worker(each, current) for each in past.workers if not names or each.service in names],
        "problems": [each.document() for each in past.problems if _is_about(each, names)],
        "silenced": [each.document() for each in past.silenced if _is_about(each, names)],
    }


def _worker(of: PastWorker, current: Mapping[str, Worker]) -> Document:
    """Return the entry of a past worker; what was not kept is null."""
    same = current.get(of.uuid) if of.together == 1 else None
    lasting = {} if same is None else {key: value for key, value in entry(same).items() if key in _LASTING}
    return {
        **unknown_entry(of.name, of.state),
        "service": of.service,
        "uuid": of.uuid,
        "pid": of.pid,
        "together": of.together,
        "started": rfc3339(of.started_ns),
        **lasting,
    }


def _is_about(of: Entry, names: Collection[str]) -> bool:
    """Whether a status of these services shows the problem. It shows problems of the daemon, but no refused files."""
    problem = of.problem
    return not names or (problem.kind != "quarantined" if problem.service is None else problem.service in names)
