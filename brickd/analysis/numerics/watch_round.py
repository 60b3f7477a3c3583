"""One round of comparisons (a look): judges groups of equal inputs, which become findings and doubts.

Owns: how the verdicts on the groups of a site are combined, and what is reported about these verdicts. Must not know:
when a look is due, how a group is judged, how many findings fit. Invariant: no case is counted twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from brickd.analysis.numerics.announce import EXPLAINED, UNREPEATED, announce_news, announce_withdrawn
from brickd.analysis.numerics.fingerprints import Numerics
from brickd.analysis.numerics.kept_places import KeptPlaces
from brickd.analysis.numerics.numeric_classes import Learning
from brickd.analysis.numerics.online_state import (
    Case,
    Compared,
    DivergentSite,
    Doubt,
    KeptEvidence,
    RowDoubt,
    ServiceSite,
)
from brickd.analysis.numerics.place_state import Fate, GroupVerdict, PlaceLook, fate, judge_group
from brickd.analysis.numerics.row_verdict import FEW, UNCONFIRMED, is_unconfirmed, judge_pairs, row_pairs
from brickd.analysis.numerics.tally import Tally
from brickd.model.event_log import LogEvent
from brickd.shm import records
from brickd.shm.sites import Tier, tier_of

_WAIT_NS = 30_000_000_000  # the wait for rows of a third worker before two workers that disagree are reported


class Roll(NamedTuple):
    """The known workers: their names by uuid, their services, and the uuids of live workers."""

    names: Mapping[str, str]
    services: Collection[str]
    living: Collection[str]


@dataclass
class WatchRound:
    """One round of comparisons of running workers.

    `seen` has the earlier cases, each with a flag that tells whether it had a majority. `met` has the cases of this
    look, old and new. `rows_since` has the sites that wait because the rows of two workers differ and a third worker
    may decide; the value is the time when the wait began.
    """

    numerics: Numerics
    before: Compared
    tally: Tally
    roll: Roll
    log_event: LogEvent
    at_ns: int
    seen: set[tuple[int, bool]]
    learning: Learning
    rows_since: dict[ServiceSite, int]

    def __post_init__(self) -> None:
        self.met: set[tuple[int, bool]] = set()
        self.row_doubts = dict(self.before.row_doubts)
        self._looks: dict[ServiceSite, PlaceLook] = {}
        self._sites: dict[ServiceSite, int] = {}
        self._producers = {each.number: each for each in self.numerics.producers.copy().values()}
        self._present: dict[str, set[str]] = {}  # per service, the workers with a fingerprint in the window
        for producer in self._producers.values():
            if self.numerics.holds(producer):
                self._present.setdefault(producer.service, set()).add(producer.uuid)

    def judge(self, number: int) -> bool:
        """Judge the group of a fingerprint.

        Return False if the fingerprint was evicted, or if the group is not fully decided.
        """
        fingerprints = self.numerics.fingerprints
        print_, group = fingerprints.read(number), fingerprints.group(number)
        if print_ is None or not group or print_[0] not in self._producers:
            return False
        site = self.numerics.sites[print_[1]]
        place = ServiceSite(self._producers[print_[0]].service, site.kernel, site.layer, tier_of(print_[1]))
        if place.tier is not Tier.TENSORS:
            return self._judge_rows(place, print_[1], number)
        workers = frozenset(worker for worker, *_ in group)
        uuids = {worker: self._producers[worker].uuid for worker in workers if worker in self._producers}
        read = self.learning.read(place, group, uuids, print_[0])
        verdict = judge_group(read.group)
        self._sites[place] = print_[1]
        look = self._looks.setdefault(place, PlaceLook())
        look.fingerprints += read.whole
        if not read.whole:
            self.learning.turns.wait(place, number, once=read.once)
        look.workers |= self._uuids(workers)
        look.contradict |= self._uuids(verdict.contradict)
        look.outliers |= self._uuids(verdict.outliers)
        if look.contradiction is None and verdict.contradiction is not None:
            look.contradiction = self._case(*verdict.contradiction)
        if verdict.against is not None and verdict.other is not None:
            self._add_case(look, verdict, verdict.against, verdict.other)
        return read.whole

    def _judge_rows(self, place: ServiceSite, site: int, number: int) -> bool:
        """Judge all rows of a site, once per look."""
        if place in self._looks:
            self._looks[place].fingerprints += 1
            return True
        if not self.learning.turns.take(place):
            # one waiting fingerprint represents all rows of the site
            return not self.learning.turns.wait(place, number, once=False)
        service = self.numerics.service_number(place.service)
        pairs = row_pairs(self.numerics.fingerprints, service, site)
        living = [pair for pair in pairs if self._uuids(frozenset(pair[:2])).issubset(self.roll.living)]
        judged = living or pairs
        verdict, waits, doubt = judge_pairs(judged)
        if verdict.other is not None and is_unconfirmed(self.numerics, service, site):
            verdict, waits, doubt = GroupVerdict(verdict.workers, frozenset()), False, UNCONFIRMED
        elif verdict.other is None and place.tier is Tier.HISTORY and not all(pair.agree for pair in judged):
            doubt = doubt or FEW
        if doubt:
            self.row_doubts[place] = RowDoubt(doubt, self.at_ns)
        else:
            self.row_doubts.pop(place, None)
        self._sites[place] = site
        look = self._looks[place] = PlaceLook(fingerprints=1)
        look.workers |= self._uuids(verdict.workers)
        look.outliers |= self._uuids(verdict.outliers)
        if waits and self.at_ns - self.rows_since.setdefault(place, self.at_ns) < _WAIT_NS:
            self.learning.turns.wait(place, number, once=False)
            return True
        self.rows_since.pop(place, None)
        if verdict.against is not None and verdict.other is not None:
            case, known = self._case(verdict.against, verdict.other), self.before.findings.get(place)
            is_known = case is not None and known is not None and case.other == known.newest.other
            if case is not None and (not is_known or (look.outliers and known is not None and not known.outliers)):
                look.case, look.cases = case, 1
                look.times.update(sorted(look.outliers))
        return True

    def _add_case(self, look: PlaceLook, verdict: GroupVerdict, against: int, other: int) -> None:
        """Keep one case per site and look: one with a majority, if there is one."""
        if (other, bool(verdict.outliers)) in self.seen:
            self.met.add((other, bool(verdict.outliers)))
            return
        if look.case is None or (verdict.outliers and not look.times):
            case = self._case(against, other)
            if case is None:
                return
            look.case = case
        look.cases += (other, False) not in self.seen  # a case is not counted twice if a majority forms later
        look.times.update(sorted(self._uuids(verdict.outliers)))
        fresh = {(other, True)} if verdict.outliers else {(other, False), (against, False)}
        self.seen |= fresh
        self.met |= fresh

    def _uuids(self, numbers: frozenset[int]) -> set[str]:
        return {self._producers[n].uuid for n in numbers if n in self._producers}

    def _case(self, one: int, another: int) -> Case | None:
        against, other = self._evidence(one), self._evidence(another)
        return None if against is None or other is None else Case(self.at_ns, against, other)

    def _evidence(self, number: int) -> KeptEvidence | None:
        print_ = self.numerics.fingerprints.read(number)
        producer = None if print_ is None else self._producers.get(print_[0])
        if print_ is None or producer is None:
            return None
        head = records.checked_head(print_[2])
        names = (producer.tables.name(head[of]) if head[of] else "" for of in ("backend", "of"))
        return KeptEvidence(producer.uuid, print_[2], *names)

    def settled(self) -> Compared:
        """Return the state after this look."""
        before = self.before
        kept = KeptPlaces(before, self.tally)
        new: list[DivergentSite] = []
        joined: list[tuple[DivergentSite, Sequence[str]]] = []
        for place in dict.fromkeys((*self._looks, *before.doubts)):
            look = self._looks.get(place, PlaceLook())
            finding, doubt = self._finding(place), before.doubts.get(place)
            present = self._present.get(place.service, set())
            counts = self.tally[place]
            repeats = counts is not None and counts.repeats
            now = look.doubt(finding, doubt, present, self.roll.living)
            differs = finding is not None or look.case is not None
            state = fate(now, present, differs=differs, repeats=repeats)
            if state is Fate.FOUND and (found := self._found(place, finding, look, now, repeats=repeats)) is not None:
                room = kept.find(found)
                if finding is None:
                    new.append(found)
                elif fresh := [uuid for uuid in found.outliers if uuid not in finding.outliers]:
                    joined.append((found, fresh))
            elif state is Fate.DOUBTED:
                if finding is not None:
                    announce_withdrawn(self.log_event, place, UNREPEATED)
                room = kept.doubt(place, now)
            else:
                room = kept.trust(place)
            if room and look.fingerprints:
                self.tally.judge(place.service, self._sites[place], look.fingerprints)
        announce_news(self.log_event, before.findings.values(), new, joined)
        return replace(
            before,
            findings=kept.findings,
            doubts=kept.doubts,
            apart=self.learning.apart,
            row_doubts=self.row_doubts,
            unkept=dict(kept.unkept),
        )

    def _finding(self, place: ServiceSite) -> DivergentSite | None:
        """Return the earlier finding; None if it turned out that the workers only belong to two numeric classes."""
        finding = self.before.findings.get(place)
        if finding is None or place not in self.learning.fresh:
            return finding
        if not all(self.learning.explains(place, case) for case in (finding.first, finding.newest)):
            return finding
        announce_withdrawn(self.log_event, place, EXPLAINED)
        return None

    def _found(
        self, place: ServiceSite, before: DivergentSite | None, look: PlaceLook, now: Doubt, *, repeats: bool
    ) -> DivergentSite | None:
        """Return the finding about a site, updated by this look; None if the fingerprints that show it were evicted.

        If the look has no case, the workers that contradict themselves are the outliers.
        """
        outliers = Counter(before.outliers if before is not None else {})
        if look.case is not None:
            outliers.update({uuid: times for uuid, times in look.times.items() if uuid in now.workers})
        elif repeats:
            outliers.update(dict.fromkeys(sorted(now.contradict.difference(outliers)), 1))
        workers = self._named(before, now.workers)
        if before is not None:
            return before._replace(
                cases=before.cases + look.cases,
                workers=workers,
                outliers=dict(outliers),
                contradict=now.contradict,
                newest=look.case or before.newest,
            )
        case = look.case or now.case
        if case is None:
            return None
        cases = max(1, look.cases) if look.case is not None else len(now.contradict)
        category = (self.tally[place] or self.numerics.sites[self._sites[place]]).category
        return DivergentSite(place, category, cases, workers, dict(outliers), now.contradict, case, case)

    def _named(self, finding: DivergentSite | None, workers: frozenset[str]) -> dict[str, str]:
        before = finding.workers if finding is not None else {}
        everybody = [*before, *sorted(workers.difference(before))]
        return {uuid: self.roll.names.get(uuid) or before.get(uuid, "") for uuid in everybody}
