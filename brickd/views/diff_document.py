"""The document of `diff`.

Owns: the schema of the document. Must not know: which workers are compared, how evidence is chosen, screens.
Invariants: Data that was not compared is counted. The document tells whether a difference between times may be due to
chance.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from brickd.analysis.numerics import diagnosis
from brickd.analysis.numerics.blame import Verdict
from brickd.analysis.numerics.comparison import Comparison, Difference, EvidenceClass, Party, following, inner_sites
from brickd.analysis.numerics.fingerprints import Numerics
from brickd.analysis.numerics.match import Class, SiteFound
from brickd.analysis.timing.pace_compare import paces
from brickd.analysis.weights.verdicts import Differing
from brickd.base.units import or_none, percent, plural
from brickd.model.workers import Worker
from brickd.shm.sites import Site
from brickd.views import diff_evidence, diff_weights
from brickd.views.common import Document
from brickd.views.diff_weights import Weighed

SITES_MAX = 4096
SLOW_PERCENT = 25  # smaller differences of speed are not reported, because a machine may favour one worker for a while
_OFF_MAX = 64
# The verdicts that a site may show, in order of priority.
_RANKS = (
    Verdict.DIVERGED,
    Verdict.ROUTING,
    Verdict.INCOMPLETE,
    Verdict.WITHIN,
    Verdict.NOT_COMPARABLE,
    Verdict.IDENTICAL,
)


@dataclass(frozen=True)
class Sides:
    """The compared workers, and their fingerprints."""

    workers: Sequence[Worker]
    numerics: Numerics
    parties: Sequence[Party]


def document(
    sides: Sides, outputs: Comparison | None, weighed: Weighed, *, by_weights: bool, more: Sequence[Comparison] = ()
) -> Document:
    """Return the document of compared workers.

    Args:
        sides: the compared workers.
        outputs: the comparison at sites; None if the query is about weights.
        weighed: the weights of the workers.
        by_weights: whether weights lead.
        more: further comparisons at sites, which use other evidence.
    """
    names = [worker.name for worker in sides.workers]
    others: list[Document] = []
    if outputs is not None and not by_weights:
        part = _by_sites(sides, outputs, weighed)
        others += [weighed.other()] if weighed.known else []
    else:
        part = diff_weights.document(weighed, names)
    if outputs is not None and by_weights:
        others.append(_other(outputs))
        part["headlines"] += [] if outputs.compared else [diagnosis.outputs_not_compared(outputs)]
    others += map(_other, more)
    apart = 1 if len(names) == 2 else names.index(part["outlier"]) if part["outlier"] is not None else None
    times = None if apart is None else _times(sides, apart)
    if times is not None and Verdict(part["verdict"]).differs:
        part["headlines"] += _slower(times)
    return {
        **part,
        "outputs": _outputs(outputs),
        "others": others,
        "evidence_classes": _classes(sides, [outputs, *more], weighed),
        "weights": weighed.summary(),
        "timing": times,
    }


def _classes(
    sides: Sides, outputs: Sequence[Comparison | None], weighed: Weighed, *, keys: bool = False
) -> list[Document]:
    found = [each for each in outputs if each is not None]
    return diff_evidence.classes(found, weighed, sides.workers, other_keys=keys)


def _other(outputs: Comparison) -> Document:
    """Return a summary of the comparison at sites, for a document in which weights lead."""
    return {
        "evidence": outputs.evidence,
        "verdict": outputs.verdict,
        "compared": outputs.compared,
        "diverged": outputs.diverged,
    }


def _outputs(compared: Comparison | None) -> Document | None:
    """Count the compared fingerprints; None if the query is only about weights."""
    if compared is None:
        return None
    return {
        "evidence": compared.evidence,
        "fingerprints": compared.matched.fingerprints,
        "compared": compared.compared,
    }


def nothing(
    sides: Sides, why: str, tried: Comparison | None, weighed: Weighed, *, other_keys: bool = False
) -> Document:
    """Return the document of workers that are not comparable.

    Args:
        sides: the workers.
        why: the reason.
        tried: the comparison that found nothing comparable; None if it was a comparison of weights.
        weighed: the weights of the workers.
        other_keys: whether the reason is that the checksums have different keys.
    """
    names = [worker.name for worker in sides.workers]
    part = diff_weights.document(weighed, names) if tried is None else _by_sites(sides, tried, weighed)
    if other_keys and tried is not None:  # if rows with different keys match, that is chance and proves nothing
        part |= {"not_comparable": {"key": tried.matched.fingerprints}, "sites": [], "missing": {"a": 0, "b": 0}}
        part |= dict.fromkeys(("compared", "identical", "within", "diverged", "incomplete"), 0)
    part |= {"headlines": [why], "diagnosis": None, "verdict": Verdict.NOT_COMPARABLE, "first": None, "outlier": None}
    part |= {"reasons": [why], "outputs": _outputs(tried), "others": []}
    part |= {"evidence_classes": _classes(sides, [tried], weighed, keys=other_keys)}
    times = _times(sides, 1) if len(sides.workers) == 2 else None
    return {**part, "weights": weighed.summary(), "timing": times}


def _by_sites(sides: Sides, leads: Comparison, weighed: Weighed) -> Document:
    first, outlier = leads.first, leads.outlier
    site = None if first is None else sides.numerics.sites[first.site]
    born = leads.born()
    started = born or ([first.site] if first is not None else [])
    follow = None
    if first is not None and leads.evidence == EvidenceClass.ROW:
        within = inner_sites(sides.numerics, leads, first.site)
        born, follow = [each for each in born if each not in within], len(within)
    elif first is not None and leads.evidence in (EvidenceClass.HISTORY, EvidenceClass.RUN):
        follow = following(leads, started)
    headlines = [diagnosis.headline(leads, site)]
    blamed: list[Differing] = []
    if first is not None and site is not None:
        headlines += filter(None, [diagnosis.before(leads), diagnosis.explained(first)])
        blamed = weighed.explaining(site, [leads.parties[each].name for each in (first.expected, first.actual)])
        headlines += [diff_weights.sentence(blamed)] if blamed else []
        headlines += filter(None, [diagnosis.after(leads, follow, len([each for each in born if each != first.site]))])
    if others := [row for row in weighed.differing if row not in blamed]:
        headlines.append(diff_weights.besides(others, more=bool(blamed)))
    a, b = leads.missing()
    return {
        "headlines": headlines,
        "diagnosis": None if first is None or site is None else diagnosis.diagnosis(leads, site, first),
        "evidence": leads.evidence,
        "verdict": leads.verdict,
        "compared": leads.compared,
        "identical": leads.counts[Class.IDENTICAL],
        "within": leads.counts[Class.WITHIN],
        "diverged": leads.diverged,
        "not_comparable": leads.not_comparable,
        "incomplete": leads.incomplete,
        "missing": {"a": a, "b": b},
        "first": None if first is None or site is None else _first(leads, site, first, blamed),
        "outlier": None if outlier is None else leads.parties[outlier].name,
        "follow": follow,
        "workers": [
            {"worker": party.name, "service": worker.service, "fingerprints": found.fingerprints, "lost": party.lost,
             "missing": found.missing, "uncertain": found.uncertain}
            for party, worker, found in zip(leads.parties, sides.workers, leads.matched.workers, strict=True)
        ],
        "coverage": _coverage(sides, leads),
        "sites": _sites(sides.numerics, leads),
    }  # fmt: skip


def _first(leads: Comparison, site: Site, first: Difference, blamed: Sequence[Differing]) -> Document:
    judgement, tolerance = first.judgement, first.row.tolerance
    sides = {
        "a": {"worker": leads.parties[first.expected].name, **first.against.document(leads.step_texts)},
        "b": {"worker": leads.parties[first.actual].name, **first.worst.document(leads.step_texts)},
    }
    return {
        "kernel": site.kernel,
        "layer": or_none(site.layer),
        "position": sides["b"]["position"],
        "step": sides["b"]["step"],
        "step_text": sides["b"]["step_text"],
        "verdict": judgement.verdict,
        "blame": judgement.blame,
        "not_finite": judgement.not_finite,
        "relative_error": judgement.error,
        "inputs_error": judgement.inputs_error,
        "tolerance": tolerance,
        "rounding": judgement.rounding,
        "before": first.row.before._asdict(),
        "weights": [row.tensor._asdict() for row in blamed],
        **sides,
    }


def _coverage(sides: Sides, leads: Comparison) -> Document:
    found = leads.matched
    off = sorted(set(_off(sides.workers)))
    return {
        "fingerprints": found.fingerprints,
        "sites": len(found.sites),
        "sites_compared": sum(map(_was_compared, found.sites)),
        "lone": sum(site.lone for site in found.sites),
        "bare": sum(site.bare for site in found.sites),
        "uncertain": sum(site.uncertain for site in found.sites),
        "unreadable": sum(worker.reading.process["tensors_refused"] for worker in sides.workers),
        "steps": found.steps._asdict() if leads.evidence == EvidenceClass.RUN else None,
        "lost": sum(party.lost for party in leads.parties),
        "evicted": sides.numerics.evicted,
        "off_sites": len(off),
        "off": [{"kernel": kernel, "layer": or_none(layer)} for kernel, layer in off[:_OFF_MAX]],
    }


def _off(workers: Sequence[Worker]) -> Iterator[tuple[str, int]]:
    for worker in workers:
        for site in worker.reading.sites:
            if site is not None and site.off:
                yield worker.reading.name(site.name), site.layer


def _was_compared(site: SiteFound) -> bool:
    return any(site.classes[: Class.DIVERGED + 1])


def _sites(numerics: Numerics, leads: Comparison) -> list[Document]:
    """Return the sites in the order of execution. If there are too many, return only the sites that differ."""
    judged: dict[int, Difference] = {}
    for each in leads.differences:
        if each.site not in judged or _outranks(each, judged[each.site]):
            judged[each.site] = each
    shown = leads.matched.sites
    if len(shown) > SITES_MAX:
        shown = [site for site in shown if site.site in judged][:SITES_MAX]
    return [
        _site(numerics.sites[site.site], site, judged.get(site.site)) for site in sorted(shown, key=lambda s: s.moment)
    ]


def _outranks(one: Difference, than: Difference) -> bool:
    return _RANKS.index(one.judgement.verdict) < _RANKS.index(than.judgement.verdict)


def _site(site: Site, found: SiteFound, difference: Difference | None) -> Document:
    counts = {Class(class_): count for class_, count in enumerate(found.classes) if count}
    judgement = None if difference is None else difference.judgement
    if judgement is not None and judgement.verdict == Verdict.NOT_COMPARABLE and _was_compared(found):
        judgement = None  # all comparable fingerprints of this site are identical
    return {
        "kernel": site.kernel,
        "layer": or_none(site.layer),
        "category": site.category,
        "fingerprints": found.fingerprints,
        "compared": sum(count for class_, count in counts.items() if class_.comparable),
        "identical": counts.get(Class.IDENTICAL, 0),
        "within": counts.get(Class.WITHIN, 0),
        "diverged": counts.get(Class.DIVERGED, 0),
        "not_comparable": {class_.name.lower(): n for class_, n in counts.items() if not class_.comparable},
        "missing": found.missing,
        "lone": found.lone,
        "bare": found.bare,
        "verdict": None if judgement is None else judgement.verdict,
        "blame": None if judgement is None else judgement.blame,
        "relative_error": found.error if judgement is None else judgement.error,
    }


def _times(sides: Sides, apart: int) -> Document:
    """Compare the times of one worker with those of all others.

    The times include everything since each worker's start.
    """
    b = [sides.workers[apart]]
    a = [worker for worker in sides.workers if worker is not b[0]]
    found = paces((each.reading for each in a), (each.reading for each in b))
    return {"a": [each.name for each in a], "b": [each.name for each in b], **found.document()}


def _slower(times: Document) -> list[str]:
    slow = [
        each for each in times["bricks"] if each["significant"] and (each["difference_percent"] or 0) >= SLOW_PERCENT
    ]
    if not slow:
        return []
    more = f", and {plural(len(slow) - 1, 'more brick')}" if len(slow) > 1 else ""
    return [f"{times['b'][0]} takes longer, too: {slow[0]['brick']} +{percent(slow[0]['difference_percent'])}{more}"]
