"""The coverage of comparisons of rows: layers with a row, sites that wait for their turn, sites whose rows are unknown.

Owns: which sites have not had their turn yet. Must not know: states of sites, screens, JSON. Invariant: a site without
rows waits for its turn, or has unknown rows, or was never called in a recorded step.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from brickd.analysis.numerics.online_state import Compared, ServiceSite, SiteCounts
from brickd.model.row_calls import RowCalls, RowSite
from brickd.shm.segment_copy import Reading
from brickd.shm.sites import Tier


def row_layers(
    compared: Compared, service: str, readings: Iterable[Reading], calls: RowCalls
) -> tuple[Collection[int], Collection[int]]:
    """Return the layers of a service that have rows.

    Also return the layers that have none, and in which a site waits for its turn.
    """
    counts = {place: each for place, each in compared.sites.items() if place.service == service}
    seen = {place.layer for place, each in counts.items() if place.tier is Tier.ROWS and each.fingerprints}
    waiting = set[int]()
    for reading in readings if calls.turns else ():
        for site in reading.sites:
            place = None if site is None or site.off else ServiceSite(service, reading.name(site.name), site.layer)
            if place is not None and is_in_turn(place, counts, calls):
                waiting.add(place.layer)
    return seen - {-1}, waiting - seen - {-1}


def is_in_turn(place: ServiceSite, counts: Mapping[ServiceSite, SiteCounts], calls: RowCalls) -> bool:
    """Whether a known site has not had its turn yet."""
    if not calls.turns or any(place._replace(tier=tier) in counts for tier in Tier):
        return False
    return not calls.why(RowSite(place.kernel, place.layer))


def unknown_rows(calls: Mapping[str, RowCalls]) -> dict[ServiceSite, dict[str, int]]:
    """For each site, the number of its calls without rows, by reason."""
    found: dict[ServiceSite, dict[str, int]] = {}
    for service, of in calls.items():
        for why, sites in of.unknown.items():
            for site, n in sites.items():
                found.setdefault(ServiceSite(service, *site, Tier.ROWS), {})[why] = n
    return found
