"""The counts of each site, which continue from one round of comparisons (a look) to the next and after a restart.

Owns: which sites are counted separately, and how counts continue after a restart. Must not know: how differences are
judged. Invariants: The cost of a look depends only on the changes since the last look. Services without a known worker
are not counted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from brickd.analysis.numerics.fingerprints import Numerics
from brickd.analysis.numerics.online_state import OTHERS, SITES_MAX, ServiceSite, SiteCounts
from brickd.analysis.numerics.recent_counts import FingerprintCounts
from brickd.shm.sites import ServiceTier, plain, tier_of


class _Places(NamedTuple):
    """The sites of a service by id, each with its first category."""

    service: str
    of: dict[int, tuple[ServiceSite, str]]


class Tally:
    """The counts of all sites."""

    def __init__(self, numerics: Numerics, before: Mapping[ServiceSite, SiteCounts]) -> None:
        self._numerics = numerics
        self._sites = dict(before)
        self._services = {place.service for place in before if place.service}
        self._places: dict[int, _Places] = {}

    def __getitem__(self, place: ServiceSite) -> SiteCounts | None:
        return self._sites.get(place)

    def sites(self) -> Mapping[ServiceSite, SiteCounts]:
        """A copy of all counts."""
        return self._sites.copy()

    def take(self, services: Collection[str]) -> Mapping[ServiceTier, FingerprintCounts]:
        """Add the counts since the last look, and return them."""
        if departed := self._services.difference(services):
            self._services -= departed
            self._sites = {place: counts for place, counts in self._sites.items() if place.service not in departed}
            self._forget(number for number, places in self._places.items() if places.service in departed)
        news, strangers = dict[ServiceTier, FingerprintCounts](), set[int]()
        for number, site, *more in self._numerics.fingerprints.counts():
            place, category = self._placed(number, site)
            if not place.is_of(services):
                strangers.add(number)
                continue
            before = self._sites.get(place) or SiteCounts(category)
            # a site with the stateful flag does not change the category
            if before.category != category and site == plain(site):
                before = before._replace(category=category)
            self._sites[place] = before.and_(*more)
            new = SiteCounts(category, *more)
            counts = FingerprintCounts(new.fingerprints, new.bare, new.stateful, new.met)
            about = place.service, place.tier
            news[about] = news.get(about, FingerprintCounts()).plus(counts)
        for (service, tier), rows in self._numerics.row_workers.take().items():
            if service in services:
                before_them = news.get((service, tier), FingerprintCounts())
                news[service, tier] = before_them.plus(FingerprintCounts(rows, left_out=rows))
        self._services.update(service for service, _ in news if service)
        self._forget(strangers)
        return news

    def judge(self, service: str, site: int, times: int) -> None:
        """Count judgements at a site."""
        place, _ = self._placed(self._numerics.service_number(service), site)
        if (counts := self._sites.get(place)) is not None:
            self._sites[place] = counts._replace(judged=counts.judged + times)

    def unjudge(self, place: ServiceSite) -> None:
        """Forget the judgements at a site."""
        if (counts := self._sites.get(place)) is not None:
            self._sites[place] = counts._replace(judged=0)

    def _forget(self, numbers: Iterable[int]) -> None:
        for number in list(numbers):
            self._numerics.fingerprints.forget(number)
            self._places.pop(number, None)

    def _placed(self, number: int, site: int) -> tuple[ServiceSite, str]:
        if not site:
            return ServiceSite("", *OTHERS), "other"
        places = self._places.get(number)
        if places is None:
            places = self._places[number] = _Places(self._numerics.service(number), {})
        found = places.of.get(site)
        if found is None:
            named = self._numerics.sites[site]
            place = ServiceSite(places.service, named.kernel, named.layer, tier_of(site))
            category = named.category
            if place not in self._sites and len(self._sites) >= SITES_MAX:
                place, category = ServiceSite(places.service, *OTHERS), "other"
            found = places.of[site] = place, category
        return found
