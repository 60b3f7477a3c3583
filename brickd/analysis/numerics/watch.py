"""Comparison of running workers in rounds, called looks: each look judges and counts the new fingerprints.

Owns: the initial state of a look, and the counts after it. Must not know: where fingerprints come from, how a site is
judged, how the state is saved. Invariants: The cost of a look is bounded, whatever arrives. Fingerprints that were not
judged are counted.
"""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from brickd.analysis.numerics.birth_alarms import log_births
from brickd.analysis.numerics.fingerprints import Numerics
from brickd.analysis.numerics.not_finite import BirthsWatch
from brickd.analysis.numerics.numeric_classes import TURNS_MAX, JudgeTurns, Learning
from brickd.analysis.numerics.online_state import (
    Compared,
    DivergentSite,
    Latest,
    RowsApart,
    ServiceSite,
)
from brickd.analysis.numerics.recent_counts import WINDOW_NS, added
from brickd.analysis.numerics.tally import Tally
from brickd.analysis.numerics.watch_round import Roll, WatchRound
from brickd.model.event_log import LogEvent
from brickd.shm.sites import ServiceTier, Tier

_APART_NS = 10_000_000_000  # a count sorts up to 16,384 rows under the window's lock
_MARKS_MAX = 4_096  # remembered looks; that many take more than an hour


class Watch:
    """Compares the fingerprints of running workers; `compared` is the state after the last look."""

    def __init__(
        self,
        numerics: Numerics,
        log_event: LogEvent,
        before: Compared | None = None,
        turns: int = TURNS_MAX,
    ) -> None:
        before = before or Compared()
        now_ns = time.time_ns() if numerics.bytes_max else 0
        self.compared = replace(
            before,
            since_ns=before.since_ns or now_ns,
            window_since_ns=now_ns,
            window_bytes=numerics.bytes_max,
            held=0,
            oldest={},
        )
        self._numerics, self._log_event = numerics, log_event
        self._tally = Tally(numerics, before.sites)
        self._unlooked_before = before.unlooked
        self._turns = JudgeTurns(turns)
        self._rows_since: dict[ServiceSite, int] = {}
        self._apart_ns: dict[ServiceTier, int] = {}
        self._births = BirthsWatch(numerics)
        self._judged_end = self._looked = 0
        # The cases of the last look. The reader reports a group again when one of its fingerprints repeats.
        self._seen = frozenset[tuple[int, bool]]()
        self._marks: dict[ServiceTier, deque[tuple[int, int]]] = {}  # (number of fingerprints so far, time)
        self._forgotten: deque[tuple[Collection[str], Callable[[DivergentSite], bool]]] = deque()

    @property
    def waits(self) -> bool:
        """Whether the last look stopped at its limit and left work for the next look."""
        return self._turns.denied

    def forget(self, workers: Collection[str], meant: Callable[[DivergentSite], bool]) -> None:
        """At the next look, drop the findings that `meant` selects, and drop all fingerprints of `workers`.

        Any thread may call this.
        """
        self._forgotten.append((workers, meant))

    def look(self, call: Callable[[], Roll]) -> Compared:
        """Judge the fingerprints since the last look; `call` returns the known workers.

        Services without a known worker are dropped.
        """
        while self._forgotten:
            workers, meant = self._forgotten.popleft()
            self._numerics.forget(workers)
            left = {place: each for place, each in self.compared.findings.items() if not meant(each)}
            self.compared = replace(self.compared, findings=left).without(workers)
        fingerprints = self._numerics.fingerprints
        if fingerprints.end == self._judged_end and not self.waits:
            return self.compared
        self._judged_end, at_ns, roll = fingerprints.end, time.time_ns(), call()
        waiting, news = fingerprints.unlike(), self._tally.take(roll.services)
        waiting = list(dict.fromkeys((*self._turns.begin(), *waiting)))
        if waiting or self.compared.doubts:
            learning = Learning(self._numerics.fingerprints, self._turns, roll.living, dict(self.compared.apart))
            round_ = WatchRound(
                self._numerics,
                self.compared,
                self._tally,
                roll,
                self._log_event,
                at_ns,
                set(self._seen),
                learning,
                self._rows_since,
            )
            self._looked += sum(map(round_.judge, waiting))
            self.compared = round_.settled()
            if waiting:
                self._seen = frozenset(round_.met)
        known = self.compared.of_services(roll.services)
        born = self._births.look(known.births, known.by_design, roll.names.keys(), at_ns)
        log_births(self._log_event, born.births, born.new, roll.names)
        latest, recent = dict(known.latest), dict(known.recent)
        for (service, tier), counts in news.items():
            if counts.met and tier is Tier.TENSORS:
                latest[service] = Latest(counts.met + (latest[service].met if service in latest else 0), at_ns)
            if service:
                recent[service, tier] = added(recent.get((service, tier), ()), at_ns, counts)
        self.compared = replace(
            known,
            held=fingerprints.end - fingerprints.first,
            oldest=self._oldest(roll.services, at_ns),
            sites=self._tally.sites(),
            latest=latest,
            recent=recent,
            row_doubts={place: each for place, each in known.row_doubts.items() if at_ns - each.at_ns < WINDOW_NS},
            rows_apart=self._rows_apart(known.rows_apart, news, at_ns),
            births=born.births,
            by_design=born.by_design,
            births_unkept=born.unkept + fingerprints.untracked,
            unlooked=self._unlooked_before + fingerprints.unlike_all - self._looked,
        )
        return self.compared

    def _rows_apart(
        self, known: Mapping[ServiceTier, RowsApart], news: Collection[ServiceTier], at_ns: int
    ) -> Mapping[ServiceTier, RowsApart]:
        """Now and then, count the rows that another worker also had, but only in another context or lineage.

        This is done in services that have new rows.
        """
        found = dict(known)
        for service, tier in news:
            if service and tier is not Tier.TENSORS and at_ns - self._apart_ns.get((service, tier), 0) >= _APART_NS:
                self._apart_ns[service, tier] = at_ns
                number = self._numerics.service_number(service)
                found[service, tier] = RowsApart(*self._numerics.fingerprints.rows_apart(number, tier))
        return found

    def _oldest(self, services: Collection[str], at_ns: int) -> dict[ServiceTier, int]:
        """Return, for each service and tier, when the oldest fingerprint in its window arrived."""
        self._marks = {of: marks for of, marks in self._marks.items() if of[0] in services}
        for service, tier in itertools.product(services, Tier):
            _, first, end = self._numerics.extent(service, tier)
            marks = self._marks.setdefault((service, tier), deque(maxlen=_MARKS_MAX))
            if not marks or marks[-1][0] != end:
                marks.append((end, at_ns))
            while marks and marks[0][0] <= first:
                marks.popleft()
        return {of: marks[0][1] for of, marks in self._marks.items() if marks}
