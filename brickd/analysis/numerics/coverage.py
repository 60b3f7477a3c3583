"""Coverage: which sites were compared, and which cannot be compared.

Owns: the state of a site, and the totals of a service. Must not know: screens, JSON, how a finding is reached.
Invariant: each fingerprint that was not compared is counted under its reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple

from brickd.analysis.numerics.numeric_classes import classes_of
from brickd.analysis.numerics.online_state import Compared, ServiceSite, SiteCounts
from brickd.analysis.numerics.row_coverage import is_in_turn, row_layers, unknown_rows
from brickd.analysis.numerics.row_verdict import UNSTEADY
from brickd.model.row_calls import RowCalls, row_calls
from brickd.model.workers import Worker
from brickd.shm import _reader
from brickd.shm.segment_copy import CallPath, Reading
from brickd.shm.sites import Tier

_CLOSED = "closed"  # workers give this category to a site whose inside cannot be recorded


class SiteState(StrEnum):
    """How much of a site is compared; the most important state comes first."""

    DIFFERS = "differs"
    UNJUDGED = "not_judged"  # outputs differ, but are not judged yet or could not be kept for lack of room
    UNREPEATED = "does_not_repeat"  # workers contradict themselves; the cause is a worker or the kernel
    OFF = "off"  # not recorded, because its tensors would reveal the text of requests
    LEFT_OUT = "left_out"  # the operator excluded the site from recording
    CLOSED = "closed"  # inside a module that torch compiles or copies to several devices: only its outside is visible
    UNKNOWN = "unknown"  # the rows of the site may depend on more than the input row, or could not be recorded
    SILENT = "silent"  # the site is known but has no fingerprint
    IN_TURN = "in_turn"  # not examined yet, because other sites of the model had their turn
    NO_INPUTS = "no_inputs"  # the fingerprints have no inputs, so they have no counterpart
    STATEFUL = "stateful"  # the output depends on state that is not an input
    ALONE = "alone"  # no other worker had the same inputs
    COMPARED = "compared"


class SiteSeen(NamedTuple):
    """A site and its counts.

    Attributes:
        classes: the uuids of the workers in each numeric class, if there are several.
        unknown: the calls without rows, by reason.
        phases: for each phase, how many calls of the kernel had rows, summed over all layers.
    """

    place: ServiceSite
    state: SiteState
    counts: SiteCounts
    classes: Sequence[Sequence[str]] = ()
    unknown: Mapping[str, int] = MappingProxyType({})
    phases: Mapping[str, int] = MappingProxyType({})


class ServiceSeen(NamedTuple):
    """The coverage of a service.

    Attributes:
        workers: the number of workers with sites.
        counts: the counts of fingerprints of whole tensors.
        rows: the counts of fingerprints of single rows.
        histories: the counts of fingerprints of single rows with a history.
        calls: the calls that were examined for rows.
        layers: the number of layers with a row.
        layers_in_turn: the number of layers that have no rows, and in which a site still waits for its turn.
        off: the number of sites that are not recorded.
        closed: the number of sites that cannot be recorded.
        no_inputs: the number of sites without inputs.
        lost: the number of checksums for which workers had no room.
        unreadable: the number of tensors that workers could not read.
        differ: the number of sites where workers differ.
        rows_differ: the number of sites where rows differ.
        histories_differ: the number of sites where rows with equal histories differ.
        classes: the largest number of numeric classes at one site.
        unkept: the number of findings for which the daemon had no room.
        compared_ns: the time of the last comparison, since 1970; None if nothing was compared.
    """

    service: str
    workers: int
    counts: SiteCounts
    rows: SiteCounts
    histories: SiteCounts
    calls: RowCalls
    layers: int
    layers_in_turn: int
    off: int
    closed: int
    no_inputs: int
    lost: int
    unreadable: int
    differ: int
    rows_differ: int
    histories_differ: int
    classes: int
    unkept: int
    compared_ns: int | None


def services(compared: Compared, workers: Sequence[Worker]) -> list[ServiceSeen]:
    """Return the coverage of the services of these workers, except of services that have nothing to compare."""
    found = []
    by_service: dict[str, list[Sequence[Sequence[str]]]] = {}
    for place, classes in _classes(compared, workers).items():
        by_service.setdefault(place.service, []).append(classes)
    for service in dict.fromkeys(worker.service for worker in workers):
        readings = [worker.reading for worker in workers if worker.service == service]
        whole, rows, histories = ([*_counts(compared, service, tier)] for tier in Tier)
        with_sites = [reading for reading in readings if reading.sites]
        calls = row_calls(worker for worker in workers if worker.service == service)
        if not (whole or rows or histories or with_sites or calls.histories):
            continue
        latest = compared.latest.get(service)
        seen, waiting = row_layers(compared, service, with_sites, calls)
        differ = Counter(place.tier for place in compared.findings if place.service == service)
        found.append(
            ServiceSeen(
                service,
                len(with_sites),
                _sum(whole),
                _sum(rows),
                _sum(histories),
                calls,
                len(seen),
                len(waiting),
                off=max((sum(site is not None and site.off for site in each.sites) for each in with_sites), default=0),
                closed=max(map(_closed, with_sites), default=0),
                no_inputs=sum(0 < counts.fingerprints == counts.bare for counts in whole),
                lost=sum(map(lost, readings)),
                unreadable=sum(reading.process["tensors_refused"] for reading in readings),
                differ=differ[Tier.TENSORS],
                rows_differ=differ[Tier.ROWS],
                histories_differ=differ[Tier.HISTORY],
                classes=max(map(len, by_service.get(service, ())), default=1),
                unkept=compared.unkept.get(service, 0),
                compared_ns=None if latest is None else latest.at_ns,
            )
        )
    return found


def _counts(compared: Compared, service: str, tier: Tier) -> Iterator[SiteCounts]:
    return (counts for place, counts in compared.sites.items() if (place.service, place.tier) == (service, tier))


def _sum(counts: Iterable[SiteCounts]) -> SiteCounts:
    total = SiteCounts("")
    for each in counts:
        total = total.and_(*each[1:])
    return total


def _classes(compared: Compared, workers: Iterable[Worker]) -> dict[ServiceSite, list[list[str]]]:
    """Return the numeric classes of these workers, at sites with several classes."""
    uuids: dict[str, list[str]] = {}
    for worker in workers:
        uuids.setdefault(worker.service, []).append(worker.reading.uuid)
    found = {place: classes_of(apart, uuids.get(place.service, ())) for place, apart in compared.apart.items()}
    return {place: classes for place, classes in found.items() if len(classes) > 1}


def _closed(reading: Reading) -> int:
    return sum(site is not None and reading.category(site.name) == _CLOSED for site in reading.sites)


def lost(reading: Reading) -> int:
    """Count the checksums for which a worker had no room."""
    return sum(lane["event_dropped"][_reader.KIND_CHECKED] for _, lane, _ in reading.lanes)


def sites(compared: Compared, workers: Sequence[Worker]) -> list[SiteSeen]:
    """Return the sites of these services; sites that are not compared come first."""
    on: dict[ServiceSite, str] = {}
    off: dict[ServiceSite, str] = {}
    left_out: set[ServiceSite] = set()
    recorded: set[ServiceSite] = set()
    names = set()
    for worker in workers:
        reading = worker.reading
        names.add(worker.service)
        for number, site in enumerate(reading.sites):
            if site is not None:
                place = ServiceSite(worker.service, reading.name(site.name), site.layer)
                (off if site.off else on).setdefault(place, reading.category(site.name))
                if reading.alive:
                    (left_out if reading.leaves_out(number) else recorded).add(place)
    counted = {place: counts for place, counts in compared.sites.items() if place.service in names}
    known = {
        place: SiteCounts(category)
        for place, category in (off | on).items()
        # without counts of whole tensors, only rows are recorded
        if all(place._replace(tier=tier) not in counted for tier in (Tier.ROWS, Tier.HISTORY))
    } | counted
    left_out -= recorded
    classes = _classes(compared, workers)
    calls = {service: row_calls(worker for worker in workers if worker.service == service) for service in names}
    unknown = unknown_rows(calls)
    for place in unknown:  # the place of the site's rows, because the place of the site itself has no records
        other = place._replace(tier=Tier.TENSORS)
        counts = known.pop(other) if other in known and not known[other].fingerprints else SiteCounts("other")
        known.setdefault(place, SiteCounts(known[other].category if other in known else counts.category))
    found = []
    for place, counts in known.items():
        state = state_of(compared, place, counts, off, on, left_out)
        if state in (SiteState.SILENT, SiteState.CLOSED) and place in unknown:
            state = SiteState.UNKNOWN
        elif state is SiteState.SILENT and is_in_turn(place, counted, calls[place.service]):
            state = SiteState.IN_TURN
        of = calls.get(place.service)
        phases = of.kernels.get(place.kernel, {}) if of is not None and place.tier is Tier.ROWS else {}
        found.append(SiteSeen(place, state, counts, classes.get(place, ()), unknown.get(place, {}), phases))
    order = list(SiteState)
    return sorted(found, key=lambda each: (order.index(each.state), each.place))


def state_of(
    compared: Compared,
    place: ServiceSite,
    counts: SiteCounts,
    off: Collection[ServiceSite],
    on: Collection[ServiceSite],
    left_out: Collection[ServiceSite] = (),
) -> SiteState:
    """Return the state of a site.

    `off`: the sites that would reveal the text of requests. `left_out`: the sites that the operator excluded.
    """
    if place in compared.findings:
        return SiteState.DIFFERS
    row_doubt = compared.row_doubts.get(place)
    if place in compared.doubts or (row_doubt is not None and row_doubt.why == UNSTEADY):
        return SiteState.UNREPEATED
    if row_doubt is not None:
        return SiteState.UNJUDGED
    if counts.unlike and not counts.judged:
        return SiteState.UNJUDGED
    if counts.met:
        return SiteState.COMPARED
    if counts.stateful:
        return SiteState.STATEFUL
    if counts.fingerprints:
        return SiteState.NO_INPUTS if counts.bare == counts.fingerprints else SiteState.ALONE
    if place in off and place not in on:
        return SiteState.OFF
    if place in left_out:
        return SiteState.LEFT_OUT
    return SiteState.CLOSED if counts.category == _CLOSED else SiteState.SILENT


def thinned(workers: Iterable[Worker]) -> tuple[int, bool, int, int]:
    """Return the lowest rate, and whether only instrumented models have it.

    Also return how many workers have this rate, and the number of all live workers.
    """
    alive = [worker.reading for worker in workers if worker.reading.alive]
    rates = [(each.rate or each.own_rate or _reader.RATE_ALL, each.own_rate != 0) for each in alive]
    least = min(rates, default=(_reader.RATE_ALL, False))
    return *least, rates.count(least), len(rates)


def bricks_without_sites(workers: Iterable[Worker]) -> list[tuple[str, str]]:
    """Return the bricks whose output is not fingerprinted at any site. Each comes with its service."""
    bricks: dict[tuple[str, str], None] = {}
    checked: set[tuple[str, str]] = set()
    for worker in workers:
        reading = worker.reading
        checked |= {(worker.service, reading.name(site.name)) for site in reading.sites if site is not None}
        bricks |= dict.fromkeys((worker.service, reading.name(name)) for name in sorted(_bricks(reading.paths)))
    return [brick for brick in bricks if brick not in checked]


def _bricks(paths: Sequence[CallPath | None]) -> set[int]:
    """The names of bricks. Kernels, transfers, functions, tasks and files are left out: they compute no outputs."""
    known = [path for path in paths[1:] if path is not None]
    # Only the first call of a function marks its definition, so its calls in other layers are known by its name.
    defined = (paths[path.parent] for path in known if path.unit == _reader.UNIT_DEFINED)
    functions = {path.name for path in defined if path is not None}
    kernels = {(path.parent, path.name) for path in known if path.unit == _reader.UNIT_LAUNCHED}
    return {
        path.name
        for path in known
        if not path.marks
        and path.name not in functions
        # The recorded times of a kernel have the same name and parent as the launch of that kernel.
        and (path.unit == _reader.UNIT_TICKS or (path.parent, path.name) not in kernels)
    }
