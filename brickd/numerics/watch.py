"""Workers are held against each other as they speak: what differs is judged, told once, and kept with its evidence.

Owns: when a difference is a finding, how counts go on from those of an earlier daemon, what is told. Must not know:
where fingerprints come from, how the state is kept. Invariants: a case is counted once; a look
costs what its bounds allow, whatever comes; what was not looked at, or found no room, is counted.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from brickd import records
from brickd.events import Tell
from brickd.numerics.compared import (
    ALL_FINDINGS_MAX,
    DOUBTS_MAX,
    FINDINGS_MAX,
    WORKERS_MAX,
    Case,
    Compared,
    Counts,
    Doubt,
    Evidence,
    Finding,
    Latest,
    Place,
)
from brickd.numerics.numerics import Numerics, Speaker
from brickd.numerics.opinions import Opinions, opinions
from brickd.numerics.sites import Site
from brickd.numerics.tally import Tally
from brickd.numerics.told import tell_finding, tell_joined, tell_withdrawn

_MARKS_MAX = 4_096  # looks: more than an hour


class Roll(NamedTuple):
    """Who is known: what workers are called, by uuid, and the services that they are of."""

    names: Mapping[str, str]
    services: Collection[str]


class Watch:
    """What becomes of differences.

    Attributes:
        compared: all that is known, as of the last look.
    """

    def __init__(self, numerics: Numerics, tell: Tell, before: Compared | None = None) -> None:
        before = before or Compared()
        now_ns = time.time_ns() if numerics.bytes_max else 0
        self.compared = replace(
            before, since_ns=before.since_ns or now_ns, window_since_ns=now_ns, window_bytes=numerics.bytes_max, held=0
        )
        self._numerics, self._tell = numerics, tell
        self._tally = Tally(numerics, before.sites)
        self._unlooked_before = before.unlooked
        self._heard = self._looked = 0
        self._seen: frozenset[tuple[int, bool]] = (
            frozenset()
        )  # cases of the last look: a group may be told of more than once
        self._marks: deque[tuple[int, int]] = deque(maxlen=_MARKS_MAX)  # how many prints there were, and when
        self._forgotten: deque[tuple[Collection[str], Callable[[Finding], bool]]] = deque()

    def forget(self, workers: Collection[str], meant: Callable[[Finding], bool]) -> None:
        """At the next look have findings dropped, and be no opinion any more what some said; from any thread."""
        self._forgotten.append((workers, meant))

    def look(self, call: Callable[[], Roll]) -> Compared:
        """Judge what came since the last look; of services of which nobody is known any more nothing is kept.

        Args:
            call: asks who is known.
        """
        while self._forgotten:
            workers, meant = self._forgotten.popleft()
            self._numerics.forget(workers)
            left = {place: each for place, each in self.compared.findings.items() if not meant(each)}
            self.compared = replace(self.compared, findings=left).without(workers)
        prints = self._numerics.prints
        if prints.end == self._heard:
            return self.compared
        self._heard, at_ns, roll = prints.end, time.time_ns(), call()
        waiting, met = prints.unlike(), self._tally.take(roll.services)
        sites = self._tally.sites()
        if waiting or self.compared.doubts:
            round_ = _Round(self._numerics, self.compared, sites, roll.names, self._tell, at_ns, set(self._seen))
            self._looked += sum(map(round_.judge, waiting))
            round_.decide()
            self._seen = frozenset(round_.seen - self._seen)
            self.compared = round_.found()
        self._marks.append((prints.end, at_ns))
        while self._marks[0][0] <= prints.first:
            self._marks.popleft()
        known = self.compared.of_services(roll.services)
        self.compared = replace(
            known,
            held=prints.end - prints.first,
            oldest_ns=self._marks[0][1],
            sites=sites,
            latest={**known.latest, **{service: _later(known, service, n, at_ns) for service, n in met.items()}},
            unlooked=self._unlooked_before + prints.unlike_all - self._looked,
        )
        return self.compared


def _later(known: Compared, service: str, more: int, at_ns: int) -> Latest:
    before = known.latest.get(service)
    return Latest(more if before is None else before.met + more, at_ns)


@dataclass
class _Round:
    """One look at those that wait; `seen`: the prints that are cases already, and whether it is known who is right."""

    numerics: Numerics
    before: Compared
    sites: Mapping[Place, Counts]
    names: Mapping[str, str]
    tell: Tell
    at_ns: int
    seen: set[tuple[int, bool]]

    def __post_init__(self) -> None:
        self._findings, self._doubts = dict(self.before.findings), dict(self.before.doubts)
        self._unkept = dict(self.before.unkept)
        self._speakers = {each.number: each for each in self.numerics.speakers.copy().values()}
        self._present: dict[str, set[str]] = {}  # of each service those of whom anything is held
        for speaker in self._speakers.values():
            if speaker.heard > self.numerics.prints.first:
                self._present.setdefault(speaker.service, set()).add(speaker.uuid)

    def found(self) -> Compared:
        """What is known now."""
        return replace(self.before, findings=self._findings, doubts=self._doubts, unkept=self._unkept)

    def judge(self, number: int) -> bool:
        """Judge the group of a print; False: it is not here any more."""
        prints = self.numerics.prints
        print_, said = prints.print(number), opinions(prints.group(number))
        if print_ is None or not said.workers or print_[0] not in self._speakers:
            return False
        site = self.numerics.sites[print_[1]]
        place = Place(self._speakers[print_[0]].service, site.kernel, site.layer)
        finding, known = self._findings.get(place), self._doubts.get(place, Doubt(frozenset(), frozenset()))
        if finding is not None:
            known = Doubt(frozenset(finding.workers), finding.contradict)
        workers = self._more(self._more(known.workers, said.outliers, 2 * WORKERS_MAX), said.workers, WORKERS_MAX)
        contradict = known.contradict.union(self._uuids(said.contradict)) & workers
        odd = workers & self._uuids(said.outliers).union(finding.outliers if finding is not None else ())
        if 2 * len(odd) > len(workers | self._present.get(place.service, set())):
            contradict |= odd  # now one, now another is not with the others: that is the kernel
        if self._most(place, workers, contradict):
            if self._findings.pop(place, None) is not None:
                tell_withdrawn(self.tell, place)
            self._doubt(place, known, said, workers, contradict)
        elif said.against is None or said.other is None:
            if finding is not None:
                self._join(finding, workers, contradict)
            elif contradict:
                self._doubt(place, known, said, workers, contradict)
        elif finding is None and not self._has_room(place.service):
            self._unkept[place.service] = self._unkept.get(place.service, 0) + 1
        elif (said.other, bool(said.outliers)) not in self.seen and (case := self._case(finding, said)) is not None:
            again = (said.other, False) in self.seen  # of two that disagreed a third says, later, who is right
            self.seen |= {(said.other, True)} if said.outliers else {(said.other, False), (said.against, False)}
            self._find(place, site, said, case, workers, contradict, again=again)
        return True

    def decide(self) -> None:
        """Where the kernel turned out to repeat, who contradicts himself there is a finding."""
        for place, doubt in list(self._doubts.items()):
            counts = self.sites.get(place)
            workers, contradict, case = doubt
            if counts is None or not counts.repeats or self._most(place, workers, contradict):
                continue
            if case is None:
                del self._doubts[place]
            elif self._has_room(place.service):
                del self._doubts[place]
                outliers = dict.fromkeys(sorted(contradict), 1)
                named = self._named(None, workers)
                found = Finding(place, counts.category, len(contradict), named, outliers, contradict, case, case)
                self._findings[place] = found
                tell_finding(self.tell, found)

    def _join(self, finding: Finding, workers: frozenset[str], contradict: frozenset[str]) -> None:
        """Others contradict themselves there, too."""
        place, counts = finding.place, self.sites.get(finding.place)
        fresh = sorted(contradict.difference(finding.outliers)) if counts is not None and counts.repeats else []
        joined = replace(
            finding,
            workers=self._named(finding, workers),
            outliers={**finding.outliers, **dict.fromkeys(fresh, 1)},
            contradict=contradict,
        )
        self._findings[place] = joined
        if fresh:
            tell_joined(self.tell, joined, fresh)

    def _most(self, place: Place, workers: frozenset[str], contradict: frozenset[str]) -> bool:
        """Whether most contradict themselves: of those looked at; where the kernel repeats, of all who are there."""
        counts = self.sites.get(place)
        if counts is not None and counts.repeats:
            workers |= self._present.get(place.service, set())
        return 2 * len(contradict) > len(workers)

    def _uuids(self, numbers: frozenset[int]) -> set[str]:
        return {self._speakers[n].uuid for n in numbers if n in self._speakers}

    def _more(self, known: frozenset[str], numbers: frozenset[int], most: int) -> frozenset[str]:
        """With those of some numbers, as far as there is room."""
        return known.union(sorted(self._uuids(numbers) - known)[: max(0, most - len(known))])

    def _named(self, finding: Finding | None, workers: frozenset[str]) -> dict[str, str]:
        before = finding.workers if finding is not None else {}
        everybody = [*before, *sorted(workers.difference(before))]
        return {uuid: self.names.get(uuid) or before.get(uuid, "") for uuid in everybody}

    def _doubt(
        self, place: Place, known: Doubt, said: Opinions, workers: frozenset[str], contradict: frozenset[str]
    ) -> None:
        case = known.case
        if case is None and said.contradiction is not None:
            case = self._case_of(*said.contradiction)
        if place in self._doubts or len(self._doubts) < DOUBTS_MAX:
            self._doubts[place] = Doubt(workers, contradict, case)

    def _case(self, finding: Finding | None, said: Opinions) -> Case | None:
        """With what both said; of a place one case in a look is kept."""
        if finding is not None and finding.newest.at_ns == self.at_ns and bool(finding.outliers) == bool(said.outliers):
            return finding.newest
        return None if said.against is None or said.other is None else self._case_of(said.against, said.other)

    def _case_of(self, one: int, other: int) -> Case | None:
        against, odd = self._evidence(one), self._evidence(other)
        return None if against is None or odd is None else Case(self.at_ns, against, odd)

    def _evidence(self, number: int) -> Evidence | None:
        print_ = self.numerics.prints.print(number)
        speaker = None if print_ is None else self._speakers.get(print_[0])
        if print_ is None or speaker is None:
            return None
        (record,), _ = records.events(print_[2])
        return Evidence(speaker.uuid, print_[2], *(_text(speaker, record[name]) for name in ("backend", "of")))

    def _find(
        self,
        place: Place,
        site: Site,
        said: Opinions,
        case: Case,
        workers: frozenset[str],
        contradict: frozenset[str],
        *,
        again: bool,
    ) -> None:
        before = self._findings.get(place)
        outliers = dict(before.outliers) if before is not None else {}
        for uuid in self._uuids(said.outliers) & workers:
            outliers[uuid] = outliers.get(uuid, 0) + 1
        finding = Finding(
            place,
            before.category if before is not None else site.category,
            before.cases + (not again) if before is not None else 1,
            self._named(before, workers),
            outliers,
            contradict,
            before.first if before is not None else case,
            case,
        )
        self._findings[place] = finding
        self._doubts.pop(place, None)
        if before is None:
            tell_finding(self.tell, finding)
        elif fresh := [uuid for uuid in outliers if uuid not in before.outliers]:
            tell_joined(self.tell, finding, fresh)

    def _has_room(self, service: str) -> bool:
        of_it = sum(place.service == service for place in self._findings)
        return of_it < FINDINGS_MAX and len(self._findings) < ALL_FINDINGS_MAX


def _text(speaker: Speaker, number: int) -> str:
    return speaker.name(number) if number else ""
