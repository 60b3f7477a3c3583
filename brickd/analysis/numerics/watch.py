"""Comparison of running workers: differences are judged, reported once, kept as evidence.

Owns: when a look is due, what is kept of it, which findings keep evidence. Must not know: where fingerprints come from,
how a place is judged, how the state is saved. Invariants: a case is counted once; the cost of a look is bounded,
whatever comes; what was not judged, or had no room, is counted.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from brickd.analysis.numerics.announce import EXPLAINED, UNREPEATED, announce_news, announce_withdrawn
from brickd.analysis.numerics.birth_alarms import log_births
from brickd.analysis.numerics.fingerprints import Numerics
from brickd.analysis.numerics.not_finite import BirthsWatch
from brickd.analysis.numerics.numeric_classes import QUESTIONS_MAX, JudgeTurns, Learning
from brickd.analysis.numerics.online_state import (
    ALL_EVIDENCE_MAX,
    DOUBTS_MAX,
    EVIDENCE_MAX,
    FINDINGS_MAX,
    Case,
    Compared,
    DivergentSite,
    Doubt,
    KeptEvidence,
    Latest,
    ServiceSite,
)
from brickd.analysis.numerics.place_quota import PlaceQuota
from brickd.analysis.numerics.place_state import Fate, GroupVerdict, PlaceLook, fate, judge_group
from brickd.analysis.numerics.recent_counts import added
from brickd.analysis.numerics.tally import Tally
from brickd.model.event_log import LogEvent
from brickd.shm import records

_MARKS_MAX = 4_096  # looks: more than an hour


class Roll(NamedTuple):
    """The known workers: names by uuid, their services, the uuids of live ones."""

    names: Mapping[str, str]
    services: Collection[str]
    living: Collection[str]


class Watch:
    """Compares the fingerprints of running workers; `compared` is the state of the last look."""

    def __init__(
        self,
        numerics: Numerics,
        log_event: LogEvent,
        before: Compared | None = None,
        questions: int = QUESTIONS_MAX,
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
        self._turns = JudgeTurns(questions)
        self._births = BirthsWatch(numerics)
        self._judged_end = self._looked = 0
        # Cases of the last look: the reader reports a group again whenever any of its fingerprints comes again.
        self._seen = frozenset[tuple[int, bool]]()
        self._marks: dict[str, deque[tuple[int, int]]] = {}  # (number of a service's fingerprints so far, time)
        self._forgotten: deque[tuple[Collection[str], Callable[[DivergentSite], bool]]] = deque()

    @property
    def waits(self) -> bool:
        """Whether the last look reached its limit, and left work for the next one."""
        return self._turns.denied

    def forget(self, workers: Collection[str], meant: Callable[[DivergentSite], bool]) -> None:
        """Drop findings, and the fingerprints of workers, at the next look; from any thread."""
        self._forgotten.append((workers, meant))

    def look(self, call: Callable[[], Roll]) -> Compared:
        """Judge what came since the last look; `call` returns the known workers.

        Nothing is kept of services without a known worker.
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
            round_ = _Round(
                self._numerics, self.compared, self._tally, roll, self._log_event, at_ns, set(self._seen), learning
            )
            self._looked += sum(map(round_.judge, waiting))
            self.compared = round_.settled()
            if waiting:
                self._seen = frozenset(round_.met)
        known = self.compared.of_services(roll.services)
        born = self._births.look(known.births, known.by_design, roll.names.keys(), at_ns)
        log_births(self._log_event, born.births, born.new, roll.names)
        latest, recent = dict(known.latest), dict(known.recent)
        for service, counts in news.items():
            if counts.met:
                latest[service] = Latest(counts.met + (latest[service].met if service in latest else 0), at_ns)
            if service:
                recent[service] = added(recent.get(service, ()), at_ns, counts)
        self.compared = replace(
            known,
            held=fingerprints.end - fingerprints.first,
            oldest=self._oldest(roll.services, at_ns),
            sites=self._tally.sites(),
            latest=latest,
            recent=recent,
            births=born.births,
            by_design=born.by_design,
            births_unkept=born.unkept + fingerprints.untracked,
            unlooked=self._unlooked_before + fingerprints.unlike_all - self._looked,
        )
        return self.compared

    def _oldest(self, services: Collection[str], at_ns: int) -> dict[str, int]:
        """When the oldest fingerprint in each service's window came."""
        self._marks = {service: marks for service, marks in self._marks.items() if service in services}
        for service in services:
            _, first, end = self._numerics.extent(service)
            marks = self._marks.setdefault(service, deque(maxlen=_MARKS_MAX))
            if not marks or marks[-1][0] != end:
                marks.append((end, at_ns))
            while marks and marks[0][0] <= first:
                marks.popleft()
        return {service: marks[0][1] for service, marks in self._marks.items() if marks}


@dataclass
class _Round:
    """One look; `seen`: earlier cases and whether they had a majority; `met`: old and new ones."""

    numerics: Numerics
    before: Compared
    tally: Tally
    roll: Roll
    log_event: LogEvent
    at_ns: int
    seen: set[tuple[int, bool]]
    learning: Learning

    def __post_init__(self) -> None:
        self.met: set[tuple[int, bool]] = set()
        self._looks: dict[ServiceSite, PlaceLook] = {}
        self._sites: dict[ServiceSite, int] = {}
        self._producers = {each.number: each for each in self.numerics.producers.copy().values()}
        self._present: dict[str, set[str]] = {}  # per service, the workers with a fingerprint in the window
        for producer in self._producers.values():
            if producer.newest_end > self.numerics.extent(producer.service).first:
                self._present.setdefault(producer.service, set()).add(producer.uuid)

    def judge(self, number: int) -> bool:
        """Judge the group of a fingerprint; False: it was evicted, or is not fully decided."""
        fingerprints = self.numerics.fingerprints
        print_, group = fingerprints.read(number), fingerprints.group(number)
        if print_ is None or not group or print_[0] not in self._producers:
            return False
        site = self.numerics.sites[print_[1]]
        place = ServiceSite(self._producers[print_[0]].service, site.kernel, site.layer)
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
        look.odd |= self._uuids(verdict.outliers)
        if look.contradiction is None and verdict.contradiction is not None:
            look.contradiction = self._case(*verdict.contradiction)
        if verdict.against is not None and verdict.other is not None:
            self._add_case(look, verdict, verdict.against, verdict.other)
        return read.whole

    def _add_case(self, look: PlaceLook, verdict: GroupVerdict, against: int, other: int) -> None:
        """Keep one case of a place per look: one with a majority, if there is one."""
        if (other, bool(verdict.outliers)) in self.seen:
            self.met.add((other, bool(verdict.outliers)))
            return
        if look.case is None or (verdict.outliers and not look.times):
            case = self._case(against, other)
            if case is None:
                return
            look.case = case
        look.cases += (other, False) not in self.seen  # later, a third worker may decide between two that disagreed
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
        kept = _Kept(before, self.tally)
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
            unkept=dict(kept.unkept),
        )

    def _finding(self, place: ServiceSite) -> DivergentSite | None:
        """The earlier finding, unless it proved to be only another numeric class."""
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
        """The finding with this look's cases; without any, a worker that contradicts itself is odd.

        None: its contradiction was evicted.
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


class _Kept:
    """What is kept of all places, within limits; each method returns whether there was room."""

    def __init__(self, before: Compared, tally: Tally) -> None:
        self.findings, self.doubts = dict(before.findings), dict(before.doubts)
        self.unkept, self._tally = Counter(before.unkept), tally
        whose = [(place, _whose(each), each.newest.whole) for place, each in self.findings.items()]
        self._places = PlaceQuota(FINDINGS_MAX, FINDINGS_MAX, ((place, who) for place, who, _ in whose))
        self._evidence = PlaceQuota(
            EVIDENCE_MAX, ALL_EVIDENCE_MAX, ((place, who) for place, who, whole in whose if whole)
        )

    def find(self, found: DivergentSite) -> bool:
        """Keep a finding: workers differ there."""
        place = found.place
        self.doubts.pop(place, None)
        if not self._places.take(place, _whose(found)):
            leaves = self._places.make(place, _whose(found))
            self.unkept[place.service if leaves is None else leaves.service] += 1
            if leaves is None:
                return False
            self._evidence.leave(leaves)
            self._tally.unjudge(leaves)
            del self.findings[leaves]
        self.findings[place] = found if not found.newest.whole or self._has_room(found) else found.bare()
        return True

    def _has_room(self, found: DivergentSite) -> bool:
        if self._evidence.take(found.place, _whose(found)):
            return True
        leaves = self._evidence.make(found.place, _whose(found))
        if leaves is not None:
            self.findings[leaves] = self.findings[leaves].bare()
        return leaves is not None

    def doubt(self, place: ServiceSite, doubt: Doubt) -> bool:
        """Keep a doubt: workers contradict themselves there."""
        self._trust(place)
        if place not in self.doubts and len(self.doubts) >= DOUBTS_MAX:
            return False
        self.doubts[place] = doubt
        return True

    def trust(self, place: ServiceSite) -> bool:
        """Drop the place: nothing is wrong there."""
        self._trust(place)
        self.doubts.pop(place, None)
        return True

    def _trust(self, place: ServiceSite) -> None:
        if self.findings.pop(place, None) is not None:
            self._places.leave(place)
            self._evidence.leave(place)


def _whose(finding: DivergentSite) -> str:
    """The worker to which a place is counted: the one that differs in the newest case."""
    return finding.newest.other.worker
