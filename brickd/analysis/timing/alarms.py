"""Alarms about individual workers, and the events at the start and the end of an alarm.

Owns: the fields of an alarm, which alarms are active, and the events of alarms. Must not know: how a worker is judged,
what takes snapshots. Invariants: The active alarms are replaced as a whole, so any thread may read them. An alarm logs
one event when it starts and one when it ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol, get_args

from brickd.analysis.problem import problem_id
from brickd.base.thresholds import Thresholds
from brickd.base.units import duration, listed, plural
from brickd.model.event_log import LogEvent
from brickd.model.survey_snapshot import Snapshot

Kind = Literal["stuck", "memory", "slower", "nan"]
KINDS: tuple[Kind, ...] = get_args(Kind)
_PLACES = 4  # one text names at most this many places of stuck workers
_GONE: Mapping[Kind, str] = {
    "stuck": "no longer stuck",
    "memory": "memory no longer grows",
    "slower": "as fast as before",
}


class Alarm(NamedTuple):
    """One alarm.

    Attributes:
        subject: distinguishes the alarm from others of its kind and service, and does not change while it is active.
        command: the command to run next.
    """

    kind: Kind
    service: str
    workers: tuple[str, ...]
    subject: str
    text: str
    command: str

    @property
    def key(self) -> tuple[str, str, str]:
        """The identity of the alarm."""
        return self.kind, self.service, self.subject

    def document(self) -> dict[str, Any]:
        """The alarm as JSON."""
        return {
            "kind": self.kind,
            "service": self.service,
            "workers": list(self.workers),
            "text": self.text,
            "command": self.command,
        }


def of_services(alarms: Sequence[Alarm]) -> list[Alarm]:
    """Merge the alarms about stuck workers into one alarm per service, which names the places of the workers."""
    stuck: dict[str, list[Alarm]] = {}
    for each in alarms:
        if each.kind == "stuck":
            stuck.setdefault(each.service, []).append(each)
    together = [_together(each) for each in stuck.values()]
    return [*together, *(each for each in alarms if each.kind != "stuck")]


def _together(stuck: Sequence[Alarm]) -> Alarm:
    shown = [each.text for each in stuck[:_PLACES]]
    more = [f"{plural(len(stuck) - _PLACES, 'more place')}"] if len(stuck) > _PLACES else []
    workers = dict.fromkeys(name for each in stuck for name in each.workers)
    return stuck[0]._replace(workers=tuple(workers), text="; ".join(shown + more))


class Detector(Protocol):
    """Finds alarms of one kind."""

    def look(self, snapshot: Snapshot, thresholds: Thresholds) -> Sequence[Alarm]:
        """Return all alarms that are active at this snapshot."""


class Alarms:
    """Receives each snapshot, and keeps the active alarms."""

    def __init__(
        self, log_event: LogEvent, thresholds: Callable[[], Thresholds], detectors: Sequence[Detector]
    ) -> None:
        self._log_event, self._thresholds, self._detectors = log_event, thresholds, detectors
        self._began_ns: dict[tuple[str, str, str], int] = {}
        self._hold: tuple[Alarm, ...] = ()

    def hold(self) -> tuple[Alarm, ...]:
        """The alarms that were active at the last snapshot."""
        return self._hold

    def take(self, snapshot: Snapshot) -> None:
        """Look for alarms in a snapshot, and report those that start or end."""
        thresholds = self._thresholds()
        found = tuple(alarm for each in self._detectors for alarm in each.look(snapshot, thresholds))
        before, self._hold = self._hold, found
        now = {alarm.key: alarm for alarm in found}
        living = {worker.name for worker in snapshot.survey.workers if worker.reading.alive}
        for key, alarm in now.items():
            if key not in self._began_ns:
                self._report(alarm.kind, alarm.text, alarm)
        for alarm in before:
            if alarm.key not in now and not living.isdisjoint(alarm.workers):  # a worker that ended has not recovered
                for_ns = snapshot.now_ns - self._began_ns[alarm.key]
                text = f"{listed(alarm.workers)}: {_GONE[alarm.kind]}, after {duration(for_ns)}"
                self._report(f"{alarm.kind}_gone", text, alarm)
        self._began_ns = {key: self._began_ns.get(key, snapshot.now_ns) for key in now}

    def _report(self, kind: str, text: str, alarm: Alarm) -> None:
        worker = alarm.workers[0] if len(alarm.workers) == 1 else None
        problem = problem_id(alarm.kind, alarm.service)
        self._log_event(kind, text, service=alarm.service, worker=worker, command=alarm.command, problem=problem)
