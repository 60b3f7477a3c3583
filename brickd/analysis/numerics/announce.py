"""What is reported of a place where workers differ: the sentence, the event, and how often.

Owns: those sentences, the workers' names in them, the next command, and which findings have an event of their own. Must
not know: how a finding comes about, screens. Invariants: a sentence rests on the two fingerprints that are kept of a
case, whoever looks and however late; no worker is called by a name that is now another's; the first place at which a
worker is named is reported; however many there are, what is reported of one worker is bounded.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from brickd.analysis.numerics import blame
from brickd.analysis.numerics.evidence import add
from brickd.analysis.numerics.match import match
from brickd.analysis.numerics.online_state import Case, DivergentSite, ServiceSite
from brickd.base.timestamps import local
from brickd.base.units import plural, relative
from brickd.model.event_log import Tell
from brickd.model.worker_names import as_argument, as_arguments
from brickd.shm import _reader
from brickd.shm.sites import Site

if TYPE_CHECKING:
    from brickd.model.event_log import Tell


class JudgedCase(NamedTuple):
    """A case: what it comes to, and the two."""

    judgement: blame.Judgement
    against: blame.Said
    other: blame.Said


def judged(place: ServiceSite, category: str, case: Case) -> JudgedCase | None:
    """Judge a case; None where nothing is kept of it, or it cannot be read."""
    return _judged(place, category, case) if case.whole else None


@functools.lru_cache(maxsize=1024)
def _judged(place: ServiceSite, category: str, case: Case) -> JudgedCase | None:
    prints, site = _reader.Prints(1), Site(place.kernel, place.layer, category)
    for worker, each in enumerate((case.against, case.other)):
        add(prints, each, worker, 0, 1)
    found = match(prints, (0, 1), (0, 0), by_input=True)
    against, other = blame.read(prints, 0), blame.read(prints, 1)
    if not found.rows or against is None or other is None:
        return None
    return JudgedCase(blame.judged(found.rows[0], site, against, other), against, other)


# ---- who is called what


class Called(NamedTuple):
    """What workers are called in what is said of them.

    Attributes:
        names: of those who are known, by uuid; no two have the same now, though they had then.
        ended: the uuids of those of them who do not live.
    """

    names: Mapping[str, str]
    ended: Collection[str] = ()

    def name(self, finding: DivergentSite, uuid: str) -> str:
        """Whoever is not known is called as then, with a mark, so that nobody else is taken for it."""
        if now := self.names.get(uuid):
            return now
        then, mark = finding.workers.get(uuid), f"~{uuid[:6]}"
        return f"{then.removesuffix(mark)}{mark}" if then else uuid[:8]

    def said(self, finding: DivergentSite, uuid: str) -> str:
        """The name in a sentence, which says of a worker that it does not live."""
        return f"{self.name(finding, uuid)}{' (ended)' if uuid in self.ended else ''}"


def _then(finding: DivergentSite) -> Called:
    return Called(finding.workers)


# ---- sentences


def where(place: ServiceSite) -> str:
    """The place, for people."""
    return place.kernel if place.layer < 0 else f"{place.kernel} layer {place.layer}"


def who(finding: DivergentSite, called: Called) -> str:
    """Who is meant, and what they do."""
    named = [called.said(finding, uuid) for uuid in finding.named]
    if not finding.outliers:
        beside = len(finding.workers)
        return f"{named[0]} and {named[1]} disagree{f', no majority among {beside} workers' if beside > 2 else ''}"
    if len(named) > 1:
        return f"{named[0]} and {plural(len(named) - 1, 'more worker')} differ from the others"
    return (
        f"{named[0]} {'contradicts itself' if set(finding.named) <= finding.contradict else 'differs from the others'}"
    )


def what(finding: DivergentSite) -> str:
    """What differs: where, by how much, born where."""
    said = where(finding.place)
    if (found := judged(finding.place, finding.category, finding.shown)) is not None:
        judgement = found.judgement
        if judgement.not_finite is not None:
            said += ", NaN or infinite"
        elif judgement.error is not None:
            said += f", relative error {relative(judgement.error)}{' (rounding)' if judgement.rounding else ''}"
        if judgement.blame is blame.Blame.CULPRIT:
            said += "; its inputs were equal"
    return said


def command(finding: DivergentSite, called: Called) -> str:
    """What to do next: two are compared where each has a name of its own."""
    pair = [finding.newest.against.worker, finding.newest.other.worker]
    names = list(dict.fromkeys(called.names.get(uuid, "") for uuid in pair))
    if not all(names) or len(names) < 2:
        return f"brickd coverage {as_argument(finding.place.service)}"
    return f"brickd diff {as_arguments(names)}"


def headlines(findings: Iterable[DivergentSite], called: Called, now_ns: int) -> list[tuple[DivergentSite, str]]:
    """Of all that are about the same workers the first one, and a sentence on all of them."""
    about: dict[tuple[str, tuple[str, ...]], list[DivergentSite]] = {}
    for finding in findings:
        about.setdefault((finding.place.service, tuple(sorted(finding.named))), []).append(finding)
    return [(found[0], _headline(found, called, now_ns)) for found in about.values()]


def _headline(found: Sequence[DivergentSite], called: Called, now_ns: int) -> str:
    since = local(min(finding.first.at_ns for finding in found), now_ns)
    more = f" (and at {plural(len(found) - 1, 'more site')})" if len(found) > 1 else ""
    return f"{who(found[0], called)} since {since}: {what(found[0])}{more}"


# ---- events


def tell_finding(tell: Tell, finding: DivergentSite) -> None:
    """It is new."""
    called = _then(finding)
    named = [called.name(finding, uuid) for uuid in finding.outliers]
    worker = named[0] if len(named) == 1 else None
    text = f"{who(finding, called)}: {what(finding)}"
    tell("diverged", text, service=finding.place.service, worker=worker, command=command(finding, called))


def tell_joined(tell: Tell, finding: DivergentSite, fresh: Sequence[str]) -> None:
    """Others than before are the outliers."""
    called = _then(finding)
    for uuid in fresh:
        text = f"{called.name(finding, uuid)} differs from the others: {where(finding.place)}"
        name = finding.workers.get(uuid) or None
        tell("diverged_more", text, service=finding.place.service, worker=name, command=command(finding, called))


def tell_number(tell: Tell, finding: DivergentSite, who: Sequence[str], places: int) -> None:
    """There are so many of them by now; the newest of them."""
    called = _then(finding)
    names = [called.name(finding, uuid) for uuid in who]
    said = f"{names[0]} differs from the others" if len(who) == 1 else f"{' and '.join(names)} disagree"
    service = finding.place.service
    name = finding.workers.get(who[0]) or None if len(who) == 1 else None
    text = f"{said} at {plural(places, 'site')} by now"
    tell("diverged_more", text, service=service, worker=name, command=f"brickd coverage {as_argument(service)}")


def tell_explained(tell: Tell, place: ServiceSite) -> None:
    """It was no more than another order of adding up."""
    text = f"{where(place)} is computed in several numeric classes: what differed there was no more than that"
    tell("diverged_withdrawn", text, service=place.service, command=f"brickd coverage {as_argument(place.service)}")


def tell_withdrawn(tell: Tell, place: ServiceSite) -> None:
    """It was none."""
    text = f"{where(place)} does not repeat in most workers: it is not compared any more"
    tell("diverged_withdrawn", text, service=place.service, command=f"brickd coverage {as_argument(place.service)}")


_EACH_MAX = 8  # places of a worker of which each is told; then their number is, whenever it has doubled


def tell_news(
    tell: Tell,
    before: Iterable[DivergentSite],
    new: Sequence[DivergentSite],
    joined: Sequence[tuple[DivergentSite, Sequence[str]]],
) -> None:
    """Tell of what a look found.

    Args:
        tell: takes each event.
        before: all that had been found.
        new: what was not there.
        joined: what was, and the uuids of others that are outliers there now.
    """
    if not new and not joined:
        return
    known = Counter(who for finding in before for who in _whose(finding))
    now, told, more = known.copy(), set[tuple[str, ...]](), dict[tuple[str, ...], DivergentSite]()
    for finding in new:
        own = [who for who in _whose(finding) if _is_few(now, who)]
        if own:
            tell_finding(tell, finding)
            others = [uuid for uuid, *rest in own if not rest and uuid != finding.named[0]]
            tell_joined(tell, finding, [uuid for uuid in others if (uuid,) not in told | known.keys()])
        told.update(own)
        more |= dict.fromkeys((who for who in _whose(finding) if who not in own), finding)
    for finding, fresh in joined:
        own = [(uuid,) for uuid in fresh if _is_few(now, (uuid,))]
        tell_joined(tell, finding, [uuid for (uuid,) in own])
        more |= {(uuid,): finding for uuid in fresh if (uuid,) not in own}
    for who, finding in more.items():
        if known[who] <= _EACH_MAX or now[who].bit_length() > known[who].bit_length():
            tell_number(tell, finding, who, now[who])


def _whose(finding: DivergentSite) -> list[tuple[str, ...]]:
    """Each outlier, the worst first; or the two that disagree."""
    return [(uuid,) for uuid in finding.named] if finding.outliers else [tuple(sorted(set(finding.named)))]


def _is_few(places: Counter[tuple[str, ...]], who: tuple[str, ...]) -> bool:
    places[who] += 1
    return places[who] <= _EACH_MAX
