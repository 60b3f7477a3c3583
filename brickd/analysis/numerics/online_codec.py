"""The format in which a daemon saves the results of comparing fingerprints.

Owns: the saved format, and how older formats are read. Must not know: what the results mean, files. Invariant: `decode`
refuses every document that `encode` cannot have written.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from brickd.analysis.numerics import not_finite, recent_counts
from brickd.analysis.numerics.online_state import (
    Apart,
    Case,
    Compared,
    DivergentSite,
    Doubt,
    KeptEvidence,
    Latest,
    RowDoubt,
    ServiceSite,
    SiteCounts,
)
from brickd.base.json_values import I32_MAX, pieces, plain, require, unicode, whole
from brickd.shm import _reader
from brickd.shm.records import events
from brickd.shm.sites import Tier

_RECENT = {Tier.TENSORS: "recent", Tier.ROWS: "recent_rows", Tier.HISTORY: "recent_histories"}
_HISTORY = "history"


def encode(compared: Compared) -> Iterator[str]:
    """Encode the state as JSON, in pieces."""
    names: dict[tuple[str, str], int] = {}  # one table of names, because many sites have the same workers
    findings = [_finding(each, names) for each in compared.findings.values()]
    doubts = [
        [*_plain(place), sorted(each.workers), sorted(each.contradict), each.case and _case(each.case)]
        for place, each in compared.doubts.items()
    ]
    uuids: dict[str, int] = {}
    apart = [
        [
            *_plain(place),
            [[[uuids.setdefault(uuid, len(uuids)) for uuid in sorted(each)] for each in two] for two in of],
        ]
        for place, of in compared.apart.items()
    ]
    return pieces(
        {
            "since_ns": [plain(compared.since_ns)],
            "sites": [plain([[*_plain(place), *counts] for place, counts in compared.sites.items()])],
            "names": [plain([*names])],
            "findings": [plain(findings)],
            "doubts": [plain(doubts)],
            "uuids": [plain([*uuids])],
            "apart": [plain(apart)],
            "latest": [plain(compared.latest)],
            "unlooked": [plain(compared.unlooked)],
            "unkept": [plain(compared.unkept)],
            "births": [plain(not_finite.plain(compared.births))],
            "by_design": [plain(not_finite.plain_places(compared.by_design))],
            "row_doubts": [plain([[*_plain(place), *doubt] for place, doubt in compared.row_doubts.items()])],
            **{key: [plain(_recent(compared, tier))] for tier, key in _RECENT.items()},
        }
    )


def decode(document: Mapping[str, Any]) -> Compared:
    """Decode the output of `encode`."""
    findings = (_finding_of(row, document.get("names")) for row in document["findings"])
    return Compared(
        since_ns=whole(document["since_ns"]),
        sites={_place_of(*row[:3]): _counts_of(*row[3:]) for row in document["sites"]},
        findings={each.place: each for each in findings},
        doubts={_place_of(*row[:3]): _doubt_of(*row[3:]) for row in document["doubts"]},
        apart=_apart_of(document),
        latest={unicode(service): Latest(*map(whole, each)) for service, each in document["latest"].items()},
        unlooked=whole(document["unlooked"]),
        unkept={unicode(service): whole(count) for service, count in document["unkept"].items()},
        # Older documents do not have these keys.
        births=not_finite.of_document(document.get("births", [])),
        by_design=not_finite.places_of_document(document.get("by_design", [])),
        row_doubts={_place_of(*row[:3]): _row_doubt_of(*row[3:]) for row in document.get("row_doubts", [])},
        # Older documents have no rows or no histories, and they do not tell when fingerprints were counted.
        recent={
            (unicode(service), tier): recent_counts.of_document(slots)
            for tier, key in _RECENT.items()
            for service, slots in document.get(key, {}).items()
        },
    )


def _recent(compared: Compared, tier: Tier) -> dict[str, list[list[int]]]:
    return {service: recent_counts.plain(slots) for (service, of), slots in compared.recent.items() if of is tier}


def _apart_of(document: Mapping[str, Any]) -> dict[ServiceSite, Apart]:
    """Decode the numeric classes; older documents have none."""
    uuids = [unicode(uuid) for uuid in document.get("uuids", ())]

    def named(numbers: Sequence[int]) -> frozenset[str]:
        return frozenset(uuids[number] for number in numbers)

    return {
        _place_of(service, kernel, layer): tuple((named(one), named(two)) for one, two in of)
        for service, kernel, layer, of in document.get("apart", ())
    }


def _plain(place: ServiceSite) -> tuple[str, str | list[str], int]:
    """The three items of a site. For a site of rows, the kernel is inside a list; for histories, a word follows it."""
    kernels: dict[Tier, str | list[str]] = {
        Tier.TENSORS: place.kernel,
        Tier.ROWS: [place.kernel],
        Tier.HISTORY: [place.kernel, _HISTORY],
    }
    return place.service, kernels[place.tier], place.layer


def _place_of(service: Any, kernel: Any, layer: Any) -> ServiceSite:
    name, *words = kernel if isinstance(kernel, list) else (kernel,)
    require(words in ([], [_HISTORY]), "no word or one known word", words)
    tier = Tier.HISTORY if words else Tier.ROWS if name is not kernel else Tier.TENSORS
    return ServiceSite(unicode(service), unicode(name), whole(layer, -1, I32_MAX), tier)


def _counts_of(category: Any, *numbers: Any) -> SiteCounts:
    counts = SiteCounts(unicode(category), *map(whole, numbers))
    # Older documents do not have this count. All of their fingerprints are taken as judged.
    return counts if len(numbers) == len(SiteCounts._fields) - 1 else counts._replace(judged=counts.unlike)


def _row_doubt_of(why: Any, at_ns: Any) -> RowDoubt:
    return RowDoubt(unicode(why), whole(at_ns))


def _doubt_of(workers: Any, contradict: Any, case: Any = None) -> Doubt:
    """Decode a doubt; older documents have no case."""
    return Doubt(
        frozenset(map(unicode, workers)), frozenset(map(unicode, contradict)), _case_of(*case) if case else None
    )


def _finding(finding: DivergentSite, names: dict[tuple[str, str], int]) -> list[Any]:
    numbers = {uuid: number for number, uuid in enumerate(finding.workers)}
    return [
        _plain(finding.place),
        finding.category,
        finding.cases,
        [names.setdefault(worker, len(names)) for worker in finding.workers.items()],
        [[numbers[uuid], times] for uuid, times in finding.outliers.items()],
        sorted(numbers[uuid] for uuid in finding.contradict),
        *(_case(case) for case in (finding.first, finding.newest)),
    ]


def _finding_of(row: list[Any], names: Sequence[tuple[str, str]] | None) -> DivergentSite:
    """Decode a finding; older documents have no table of names."""
    place, category, cases, workers, outliers, contradict, first, newest = row
    if names is not None:
        workers = dict(names[number] for number in workers)
        uuids = [*workers]
        outliers = {uuids[number]: times for number, times in outliers}
        contradict = [uuids[number] for number in contradict]
    require(workers.keys() >= {*outliers, *contradict}, "outliers among the workers", (outliers, contradict))
    return DivergentSite(
        _place_of(*place),
        unicode(category),
        whole(cases),
        {unicode(uuid): unicode(name) for uuid, name in workers.items()},
        {uuid: whole(times) for uuid, times in outliers.items()},
        frozenset(contradict),
        _case_of(*first),
        _case_of(*newest),
    )


def _case(case: Case) -> list[Any]:
    both = (case.against, case.other)
    return [case.at_ns, *([each.worker, b64encode(each.slots).decode(), each.backend, each.of] for each in both)]


def _case_of(at_ns: Any, against: Any, other: Any) -> Case:
    return Case(whole(at_ns), _evidence_of(*against), _evidence_of(*other))


def _evidence_of(worker: Any, slots: Any, backend: Any, of: Any) -> KeptEvidence:
    record = b64decode(slots, validate=True)
    if record:
        found, others = events(record)
        require(len(found) == 1 and not others and "site" in found[0], "one checksum", others)
        require(found[0]["site"] < _reader.SITES_MAX, "a site", found[0]["site"])
    return KeptEvidence(unicode(worker), record, unicode(backend), unicode(of))
