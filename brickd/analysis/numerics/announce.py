"""Reports of sites where workers differ: what a report says, which event it logs, and how often one is made.

Owns: the sentences of reports, the next command, which findings get their own event. Must not know: how a finding is
reached, screens. Invariants: A sentence depends only on the two fingerprints that are stored with a case. So every
reader gets the same sentence, at any time. A report never uses a name that now belongs to another worker. The first
site at which a worker differs is always reported. The number of reports about one worker is bounded.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from brickd.analysis.numerics import blame
from brickd.analysis.numerics.evidence import add
from brickd.analysis.numerics.match import Class, match
from brickd.analysis.numerics.online_state import Case, DivergentSite, ServiceSite
from brickd.analysis.problem import problem_id
from brickd.base.timestamps import local
from brickd.base.units import plural, relative
from brickd.model.event_log import LogEvent
from brickd.model.worker_names import KnownNames, as_argument, as_arguments
from brickd.shm import _reader
from brickd.shm.sites import Site, Tier

_OF = {Tier.TENSORS: "", Tier.ROWS: "rows of ", Tier.HISTORY: "rows with equal histories of "}
_BORN: Mapping[Tier, Mapping[blame.Blame | None, str]] = {
    Tier.TENSORS: {blame.Blame.CULPRIT: "; its inputs were equal"},
    Tier.ROWS: {blame.Blame.CULPRIT: "; its input rows were equal"},
    Tier.HISTORY: {
        blame.Blame.HERE_OR_CACHE: "; it began there or in a cache: its input rows were equal",
        blame.Blame.PROPAGATED: "; it began earlier: its input rows already differ",
    },
}


class JudgedCase(NamedTuple):
    """Two fingerprints with equal inputs and different outputs, and the judgement on them."""

    judgement: blame.Judgement
    against: blame.DecodedFingerprint
    other: blame.DecodedFingerprint


@functools.lru_cache(maxsize=1024)
def judged(place: ServiceSite, category: str, case: Case) -> JudgedCase | None:
    """Judge a case; return None if its fingerprints were not stored or cannot be read."""
    if not case.whole:
        return None
    fingerprints, site = _reader.Fingerprints(1), Site(place.kernel, place.layer, category)
    for worker, each in enumerate((case.against, case.other)):
        add(fingerprints, each, worker, 0, 1)
    found = match(fingerprints, (0, 1), (0, 0), by_input=True, tier=place.tier)
    against, other = blame.read(fingerprints, 0), blame.read(fingerprints, 1)
    if not found.rows or against is None or other is None:
        return None
    # Other rows of the site already proved that the workers differ.
    row = found.rows[0] if place.tier is Tier.TENSORS else found.rows[0]._replace(class_=Class.DIVERGED)
    return JudgedCase(blame.judged(row, site, against, other), against, other)


def where(place: ServiceSite) -> str:
    """The name of the site, as it is shown to people."""
    of = _OF[place.tier]
    return f"{of}{place.kernel}" if place.layer < 0 else f"{of}{place.kernel} layer {place.layer}"


def who(finding: DivergentSite, called: KnownNames) -> str:
    """Name the workers that differ, and say how they differ."""
    named = [called.mention(finding.workers, uuid) for uuid in finding.named]
    if not finding.outliers:
        workers = len(finding.workers)
        return f"{named[0]} and {named[1]} disagree{f', no majority among {workers} workers' if workers > 2 else ''}"
    if len(named) > 1:
        return f"{named[0]} and {plural(len(named) - 1, 'more worker')} differ from the others"
    contradicts = set(finding.named) <= finding.contradict
    return f"{named[0]} {'contradicts itself' if contradicts else 'differs from the others'}"


def what(finding: DivergentSite) -> str:
    """Say where the workers differ, by how much, and where the difference was born."""
    text = where(finding.place)
    if (found := judged(finding.place, finding.category, finding.shown)) is not None:
        judgement = found.judgement
        if judgement.not_finite is not None:
            text += ", NaN or infinite"
        elif judgement.error is not None:
            text += f", relative error {relative(judgement.error)}{' (rounding)' if judgement.rounding else ''}"
        text += _BORN[finding.place.tier].get(judgement.blame, "")
    return text


def lead(finding: DivergentSite) -> tuple[bool, bool]:
    """A key to sort findings: those whose difference was certainly born at their site come first.

    After a wrong row, all later rows of its sequence are wrong, too. So many sites may differ by history.
    """
    if finding.place.tier is not Tier.HISTORY:
        return False, False
    found = judged(finding.place, finding.category, finding.shown)
    return True, found is not None and found.judgement.blame is blame.Blame.PROPAGATED


def command(finding: DivergentSite, called: KnownNames) -> str:
    """Return the next command: `diff` if both workers have a name, else `coverage` of their service."""
    pair = [finding.newest.against.worker, finding.newest.other.worker]
    names = list(dict.fromkeys(called.names.get(uuid, "") for uuid in pair))
    if not all(names) or len(names) < 2:
        return f"brickd coverage {as_argument(finding.place.service)}"
    return f"brickd diff {as_arguments(names)}"


def headlines(findings: Iterable[DivergentSite], called: KnownNames, now_ns: int) -> list[tuple[DivergentSite, str]]:
    """Choose the leading finding about each set of workers; write one sentence about all findings of that set."""
    about: dict[tuple[str, tuple[str, ...]], list[DivergentSite]] = {}
    for finding in sorted(findings, key=lead):
        about.setdefault((finding.place.service, tuple(sorted(finding.named))), []).append(finding)
    return [(found[0], _headline(found, called, now_ns)) for found in about.values()]


def _headline(found: Sequence[DivergentSite], called: KnownNames, now_ns: int) -> str:
    since = local(min(finding.first.at_ns for finding in found), now_ns)
    more = f" (and at {plural(len(found) - 1, 'more site')})" if len(found) > 1 else ""
    return f"{who(found[0], called)} since {since}: {what(found[0])}{more}"


def announce_finding(log_event: LogEvent, finding: DivergentSite) -> None:
    """Report a new finding."""
    called = KnownNames(finding.workers)
    named = [called.name(finding.workers, uuid) for uuid in finding.outliers]
    worker = named[0] if len(named) == 1 else None
    text = f"{who(finding, called)}: {what(finding)}"
    service = finding.place.service
    following, problem = command(finding, called), problem_id("numbers", service)
    log_event("diverged", text, service=service, worker=worker, command=following, problem=problem)


def announce_joined(log_event: LogEvent, finding: DivergentSite, fresh: Sequence[str]) -> None:
    """Report that a known finding has more outliers than before."""
    called = KnownNames(finding.workers)
    for uuid in fresh:
        text = f"{called.name(finding.workers, uuid)} differs from the others: {where(finding.place)}"
        name, service = finding.workers.get(uuid) or None, finding.place.service
        following, problem = command(finding, called), problem_id("numbers", service)
        log_event("diverged_more", text, service=service, worker=name, command=following, problem=problem)


def announce_number(log_event: LogEvent, finding: DivergentSite, who: Sequence[str], places: int) -> None:
    """Report at how many sites one worker differs, or two workers disagree."""
    called = KnownNames(finding.workers)
    names = [called.name(finding.workers, uuid) for uuid in who]
    verdict = f"{names[0]} differs from the others" if len(who) == 1 else f"{' and '.join(names)} disagree"
    service = finding.place.service
    name = finding.workers.get(who[0]) or None if len(who) == 1 else None
    text = f"{verdict} at {plural(places, 'site')} so far"
    following, problem = f"brickd coverage {as_argument(service)}", problem_id("numbers", service)
    log_event("diverged_more", text, service=service, worker=name, command=following, problem=problem)


EXPLAINED = "is computed by workers of several numeric classes, which explains the reported difference"
UNREPEATED = "gives different outputs for equal inputs in most workers, so it is no longer compared"


def announce_withdrawn(log_event: LogEvent, place: ServiceSite, why: str) -> None:
    """Report that a finding no longer holds; `why` is EXPLAINED or UNREPEATED."""
    command = f"brickd coverage {as_argument(place.service)}"
    log_event("diverged_withdrawn", f"{where(place)} {why}", service=place.service, command=command)


# Up to this number, each site where a worker differs gets its own report. After that, a report is made each time the
# number of sites has doubled.
_EACH_MAX = 8


def announce_news(
    log_event: LogEvent,
    before: Iterable[DivergentSite],
    new: Sequence[DivergentSite],
    joined: Sequence[tuple[DivergentSite, Sequence[str]]],
) -> None:
    """Report new findings, and earlier findings that have new outliers. The uuids of these outliers are given."""
    if not new and not joined:
        return
    known = Counter(who for finding in before for who in _whose(finding))
    now, reported, more = known.copy(), set[tuple[str, ...]](), dict[tuple[str, ...], DivergentSite]()
    for finding in sorted(new, key=lead):
        own = [who for who in _whose(finding) if _is_few(now, who)]
        if own:
            announce_finding(log_event, finding)
            others = [uuid for uuid, *rest in own if not rest and uuid != finding.named[0]]
            announce_joined(log_event, finding, [uuid for uuid in others if (uuid,) not in reported | known.keys()])
        reported.update(own)
        more |= dict.fromkeys((who for who in _whose(finding) if who not in own), finding)
    for finding, fresh in joined:
        own = [(uuid,) for uuid in fresh if _is_few(now, (uuid,))]
        announce_joined(log_event, finding, [uuid for (uuid,) in own])
        more |= {(uuid,): finding for uuid in fresh if (uuid,) not in own}
    for who, finding in more.items():
        if known[who] <= _EACH_MAX or now[who].bit_length() > known[who].bit_length():
            announce_number(log_event, finding, who, now[who])


def _whose(finding: DivergentSite) -> list[tuple[str, ...]]:
    """Return the outliers, sorted by how often they differ; if there are none, return the two workers that disagree."""
    return [(uuid,) for uuid in finding.named] if finding.outliers else [tuple(sorted(set(finding.named)))]


def _is_few(places: Counter[tuple[str, ...]], who: tuple[str, ...]) -> bool:
    places[who] += 1
    return places[who] <= _EACH_MAX
