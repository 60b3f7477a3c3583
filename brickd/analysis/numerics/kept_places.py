"""What is remembered about sites after a look: findings, doubts, and which findings keep their fingerprints.

A look is one round of comparisons. Owns: the limits, and which finding is dropped when there is no more room. Must not
know: how or when a site is judged. Invariants: One worker cannot take all the room. If there is no room for a finding,
it is counted, and its site can be judged again.
"""

from __future__ import annotations

from collections import Counter

from brickd.analysis.numerics.online_state import (
    ALL_EVIDENCE_MAX,
    DOUBTS_MAX,
    EVIDENCE_MAX,
    FINDINGS_MAX,
    Compared,
    DivergentSite,
    Doubt,
    ServiceSite,
)
from brickd.analysis.numerics.place_quota import PlaceQuota
from brickd.analysis.numerics.tally import Tally


class KeptPlaces:
    """The findings and doubts about all sites, within limits. Each method returns whether there was room."""

    def __init__(self, before: Compared, tally: Tally) -> None:
        self.findings, self.doubts = dict(before.findings), dict(before.doubts)
        self.unkept, self._tally = Counter(before.unkept), tally
        whose = [(place, _whose(each), each.newest.whole) for place, each in self.findings.items()]
        self._places = PlaceQuota(FINDINGS_MAX, FINDINGS_MAX, ((place, who) for place, who, _ in whose))
        self._evidence = PlaceQuota(
            EVIDENCE_MAX, ALL_EVIDENCE_MAX, ((place, who) for place, who, whole in whose if whole)
        )

    def find(self, found: DivergentSite) -> bool:
        """Keep a finding: workers differ at its site."""
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
        """Keep a doubt: workers contradict themselves at this site."""
        self._trust(place)
        if place not in self.doubts and len(self.doubts) >= DOUBTS_MAX:
            return False
        self.doubts[place] = doubt
        return True

    def trust(self, place: ServiceSite) -> bool:
        """Forget a site where nothing is wrong."""
        self._trust(place)
        self.doubts.pop(place, None)
        return True

    def _trust(self, place: ServiceSite) -> None:
        if self.findings.pop(place, None) is not None:
            self._places.leave(place)
            self._evidence.leave(place)


def _whose(finding: DivergentSite) -> str:
    """The worker that is charged for the room of a finding: the one that differs in the newest case."""
    return finding.newest.other.worker
