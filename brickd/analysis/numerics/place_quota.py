"""A limited number of sites, shared fairly among workers.

Owns: which site gets room, and which site is dropped for it. Must not know: what the room is used for. Invariants: The
number of sites is bounded, per service and in total. A worker without a site gets one if another worker has two.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from brickd.analysis.numerics.online_state import ServiceSite


class PlaceQuota:
    """A limited number of sites, each of which belongs to a worker."""

    def __init__(self, of_a_service: int, of_all: int, taken: Iterable[tuple[ServiceSite, str]]) -> None:
        self._of_a_service, self._of_all = of_a_service, of_all
        self._taken = dict(taken)
        self._services = Counter(place.service for place in self._taken)
        self._shares = Counter((place.service, worker) for place, worker in self._taken.items())

    def take(self, place: ServiceSite, worker: str) -> bool:
        """Give a site room if any is left. A site that already has room may be reassigned to another worker."""
        if place in self._taken:
            self._shares[place.service, self._taken[place]] -= 1
            self._shares[place.service, worker] += 1
            self._taken[place] = worker
            return True
        full_service = self._services[place.service] >= self._of_a_service
        if full_service or len(self._taken) >= self._of_all:
            return False
        self._taken[place] = worker
        self._services[place.service] += 1
        self._shares[place.service, worker] += 1
        return True

    def leave(self, place: ServiceSite) -> None:
        """Free the room of a site."""
        if (worker := self._taken.pop(place, None)) is not None:
            self._services[place.service] -= 1
            self._shares[place.service, worker] -= 1

    def make(self, place: ServiceSite, worker: str) -> ServiceSite | None:
        """Make room for a site of `worker`; return the dropped site, or None.

        The worker with the most sites loses its newest one, if it has at least two sites more than `worker`.
        """
        full_service = self._services[place.service] >= self._of_a_service
        shares = {who: n for who, n in self._shares.items() if not full_service or who[0] == place.service}
        richest = max(shares, key=shares.__getitem__, default=None)
        if richest is None or shares[richest] < self._shares[place.service, worker] + 2:
            return None
        leaves = next(each for each, who in reversed(self._taken.items()) if (each.service, who) == richest)
        self.leave(leaves)
        self.take(place, worker)
        return leaves
