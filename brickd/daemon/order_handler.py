"""Carries out orders from the API: changes settings and thresholds, makes workers read weights, drops totals.

Owns: the locks, and the sequence in which a change reaches the state, the workers and the log. Must not know: HTTP,
what a recording is. Invariants: Every method may be called from any thread. A change is in the next checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from brickd.analysis.numerics.fingerprints import Numerics
from brickd.analysis.numerics.online_state import DivergentSite
from brickd.base.thresholds import Thresholds, assigned, assignments
from brickd.base.units import plural
from brickd.daemon.canary_document import round_document
from brickd.daemon.collector import Collector
from brickd.errors import NoSuchWorker, WrongQuestion
from brickd.model.canary_definitions import CanaryFiles
from brickd.model.event_log import LogEvent
from brickd.model.retained_workers import RetainedTotals
from brickd.model.worker_names import suggestion
from brickd.model.workers import Survey, select
from brickd.query.orders import CanaryRoundQuery, CanaryRunning, Forgetting, Obeyed, Rescanning, Setting, Wish
from brickd.shm.sampling import ALL


class OrderHandler:
    """Carries out the orders for one daemon."""

    def __init__(
        self,
        collector: Collector,
        numerics: Numerics,
        survey: Callable[[], Survey],
        wake: Callable[[], None],
        log_event: LogEvent,
    ) -> None:
        self._collector, self._numerics = collector, numerics
        self._survey, self._wake, self._log_event = survey, wake, log_event

    def set(self, order: Setting) -> Obeyed:
        """Set what the workers of a service record: those that run now, and those that start later.

        Return the setting, and how many workers got it.
        """
        assert order.service is not None
        memory, roster = self._collector.memory, self._collector.roster
        with roster.reading, roster.lock:
            known = {each.service for each in roster.attached.values()} | set(memory.wishes)
            if order.service not in known:
                hint = suggestion(order.service, known)
                raise NoSuchWorker(f"no service {order.service}: {hint} (brickd status lists them)")
            before = memory.wishes.get(order.service, Wish())
            wish = Wish(
                before.spans if order.spans is None else order.spans == "on",
                before.off if order.recording is None else order.recording == "off",
                order.fingerprints or before.fingerprints,
                () if ALL in order.sites else order.sites or before.sites,
            )
            here = [each.segment.thins for each in roster.of_service(order.service)]
            obeyed = Obeyed(wish, len(here), here.count(False))
            if not order.changes:
                return obeyed
            memory.wishes.pop(order.service, None)
            if wish != Wish():
                memory.wishes[order.service] = wish
            self._collector.change()
            roster.command(order.service)
        self._wake()
        self._log_event("set", f"{wish.text()} for {plural(obeyed.workers, 'worker')}", service=order.service)
        return obeyed

    @property
    def thresholds(self) -> Thresholds:
        """Return the thresholds of alarms."""
        return self._collector.memory.thresholds

    def set_thresholds(self, order: Setting) -> Thresholds:
        """Change the thresholds that are named in the order; return all thresholds."""
        if order.threshold:
            self.take_thresholds(assigned(order.threshold, self.thresholds))
        return self.thresholds

    def take_thresholds(self, thresholds: Thresholds) -> None:
        """Save these thresholds, and use them from now on."""
        with self._collector.roster.lock:
            self._collector.memory.thresholds = thresholds
            self._collector.change()
        self._wake()
        changed = ", ".join(assignments(thresholds)) or "each has its default"
        self._log_event("set", f"thresholds: {changed}")

    def rescan(self, order: Rescanning) -> list[str]:
        """Tell workers to read their weights again; return the names of these workers."""
        select(self._survey().workers, order.names)
        roster = self._collector.roster
        with roster.reading, roster.lock:
            meant = [each for each in roster.drained() if each.heir is None and each.is_of(order.names)]
            return sorted(each.name for each in meant if each.rescan())

    def run_canaries(self, order: CanaryRunning) -> dict[str, Any]:
        """Begin a round of canaries in the workers that are meant; return its document."""
        defined, wrong = CanaryFiles().all()
        names = {each.name for each in defined}
        for name in order.canaries:
            if name not in names:
                raise WrongQuestion(f"no canary {name}: {suggestion(name, names)} (brickd canary ls lists them)")
        if not defined:
            raise WrongQuestion("; ".join(wrong) or "no canary is defined (brickd canary add NAME FILE)")
        select(self._survey().workers, order.names)
        roster, rounds = self._collector.roster, self._collector.canaries
        with roster.reading, roster.lock:
            meant = [each for each in roster.drained() if each.heir is None and each.is_of(order.names)]
        if not meant:
            raise NoSuchWorker("no live worker has these names (brickd workers lists them)")
        wanted = [each for each in defined if not order.canaries or each.name in order.canaries]
        made = rounds.begin(sorted(meant, key=lambda each: each.name), wanted)
        self._wake()
        return round_document(made, rounds.ignored)

    def canary_round(self, query: CanaryRoundQuery) -> dict[str, Any]:
        """Return the document of a round."""
        rounds = self._collector.canaries
        if (found := rounds.round(query.round)) is None:
            raise WrongQuestion(f"no round {query.round}: the daemon was restarted, or later rounds replaced it")
        return round_document(found, rounds.ignored)

    def forget(self, order: Forgetting) -> int:
        """Drop the totals of dead workers, unless it is a dry run; return how many are dropped."""
        memory, roster = self._collector.memory, self._collector.roster
        names = set(order.names)
        uuids = self._dead(names)

        def meant(gone: RetainedTotals) -> bool:
            return not names or gone.reading.uuid in uuids

        with roster.lock:
            gone = [*memory.gone.values(), *memory.older.values()]
            living = {each.uuid for each in roster.drained()}
            dropped = [each for each in gone if meant(each)]
            if order.dry_run:
                return sum(each.workers for each in dropped)
            forgotten = {uuid for uuid, each in memory.gone.items() if meant(each)}
            roster.forget(forgotten)
            added_up = {key: each for key, each in memory.older.items() if meant(each)}
            for key in added_up:
                memory.drop(memory.older.pop(key))
            if not names:
                memory.removed.take_note()
            forgotten.update(self._unknown({each.reading.service for each in added_up.values()} if names else None))
            self._collector.change()

        def about(finding: DivergentSite) -> bool:
            named = forgotten.intersection(finding.named)
            return not living.intersection(finding.named) and bool(not names or finding.place.service in names or named)

        if self._collector.watch is not None:
            self._collector.watch.forget(forgotten, about)
        self._wake()
        return sum(each.workers for each in dropped)

    def _dead(self, names: Collection[str]) -> Collection[str]:
        """Return the uuids of the dead workers with these names; raise NoSuchWorker for an unknown name."""
        dead = [worker for worker in self._survey().workers if not worker.reading.alive] if names else []
        known = {worker.name for worker in dead} | {worker.service for worker in dead}
        for name in names:
            if name not in known:
                raise NoSuchWorker(f"no ended worker {name}: {suggestion(name, known)} (brickd workers lists them)")
        return {worker.reading.uuid for worker in dead if worker.name in names or worker.service in names}

    def _unknown(self, services: Collection[str] | None) -> Collection[str]:
        """Return the uuids of workers that send fingerprints but are not in the state.

        If `services` is not None, only workers of these services are returned.
        """
        memory = self._collector.memory
        stay = memory.known.keys() | memory.gone.keys()
        left = [each for uuid, each in self._numerics.producers.copy().items() if uuid not in stay]
        return {each.uuid for each in left if services is None or each.service in services}
