"""Workers' weights are compared as they are read, and who differs is told.

Owns: when there is anything to compare, which differences are told. Must not know: how two workers are compared, who
takes snapshots. Invariant: a worker that differs is told once, and once more when it is equal again or has gone.
"""

from __future__ import annotations

from brickd.events import Tell
from brickd.naming import as_argument
from brickd.numerics.judged import Found, Judged
from brickd.numerics.weighing import Weighing
from brickd.snapshot import Snapshot
from brickd.words import many


class Scales:
    """Takes snapshots, and knows who differs."""

    def __init__(self, weighing: Weighing, tell: Tell) -> None:
        self._weighing, self._tell = weighing, tell
        self._differ: dict[tuple[str, str], Found] = {}

    def take(self, snapshot: Snapshot) -> None:
        """Tell what has changed; of services of which nobody lives nothing is to be told."""
        workers = snapshot.survey.workers
        living = {each.service for each in workers if each.reading.alive}
        judged = [each for each in self._weighing.judged(workers) if each.service in living]
        told = {(each.service, said.found.uuid): said.found for each in judged for said in each.headlines()}
        odd = {(each.service, found.uuid) for each in judged for found in each.odd}
        before = self._differ
        self._differ = {about: found for about, found in before.items() if about in odd} | told
        for each in judged:
            self._tell_those(each, before)
        for about, found in before.items():
            if about not in self._differ:
                self._tell_equal(found, judged)

    def _tell_those(self, judged: Judged, before: dict[tuple[str, str], Found]) -> None:
        for found, text, _ in judged.headlines():
            if (judged.service, found.uuid) not in before:
                command = f"brickd weights {as_argument(judged.service)}"
                self._tell("weights_differ", text, service=judged.service, worker=found.name, command=command)

    def _tell_equal(self, was: Found, judged: list[Judged]) -> None:
        now = next((each for service in judged for each in service.workers if each.uuid == was.uuid), None)
        if now is not None and now.state == "equal":
            said = f"{was.name}: its weights are equal to its replicas' again, {many(now.compared, 'tensor')}"
        else:
            said = f"{was.name}: its weights differ from nobody's any more, for there is nothing to compare them with"
        command = f"brickd weights {as_argument(was.service)}"
        self._tell("weights_equal", said, service=was.service, worker=was.name, command=command)
