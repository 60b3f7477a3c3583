"""The result of a comparison in sentences.

Owns: the words of these sentences. Must not know: how verdicts are reached, screens. Invariants: Sentences are not
escaped, so the caller escapes them. "expected" is the value of the reference, and "actual" is the value of the other
worker. A sentence that says that nothing differs also says how much was compared.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from brickd.analysis.numerics.blame import Blame, NotFinite, Verdict
from brickd.analysis.numerics.comparison import Comparison, Difference, EvidenceClass
from brickd.analysis.numerics.match import Class
from brickd.base.units import noun, plural, relative
from brickd.model.step_texts import StepTexts
from brickd.query.queries import HASHED, REASONS
from brickd.shm._reader import CONTENTS_MIN
from brickd.shm.sites import Site

_NAMED = 3
_NOT_FINITE = {
    NotFinite.BORN: "NaN or infinities began there",
    NotFinite.PASSED_ON: "NaN or infinities came from an input",
    NotFinite.UNKNOWN: "the outputs have different numbers of NaN or infinities",
}
_WITHIN = {
    EvidenceClass.INPUT: "of several numeric classes",
    EvidenceClass.ROW: "rows differ, but too few of them or by too little to name a worker",
    EvidenceClass.HISTORY: "rows with equal histories differ, but too few of them to name a worker",
}
_APART = {
    EvidenceClass.ROW: "different, but too rarely or by too little",
    EvidenceClass.HISTORY: "different, but too rarely",
}
_CALLS = {EvidenceClass.ROW: "brick.instrument", EvidenceClass.HISTORY: "brick.rows"}
_ROUNDING = "rounding may be the cause, for example another number of threads or a compiled model"


def listed(names: Sequence[str], most: int = _NAMED) -> str:
    """Join some names.

    >>> listed(["a", "b"]), listed(["a", "b", "c", "d", "e"])
    ('a and b', 'a, b, c and 2 more')
    """
    shown = list(names[:most]) + ([f"{len(names) - most} more"] if len(names) > most else [])
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


def place(of: Comparison, site: Site, difference: Difference) -> str:
    """The place of a difference."""
    record = difference.worst.record
    layer = [f"layer {site.layer}"] if site.layer >= 0 else []
    of_step = f"step {of.step_texts.name(record['step'])}"
    if of.evidence == EvidenceClass.ROW:
        return ", ".join([site.kernel, *layer, of_step, f"a row of {record['position']:,}"])
    if of.evidence == EvidenceClass.HISTORY:
        token = [] if difference.worst.token is None else [f"token {difference.worst.token:,} of a sequence"]
        return ", ".join([site.kernel, *layer, of_step, *token])
    return ", ".join([site.kernel, *layer, of_step, f"position {record['position']}"])


def headline(of: Comparison, site: Site | None) -> str:
    """Describe the verdict and its evidence; `site` is the site of the first difference."""
    names = [party.name for party in of.parties]
    first = of.first
    match of.verdict:
        case Verdict.DIVERGED | Verdict.ROUTING if first is not None and site is not None:
            return f"by {of.evidence}: {of.verdict}: {_who(first, names)}, first at {place(of, site, first)}"
        case Verdict.DIVERGED:
            return f"by {of.evidence}: diverged: {listed(names)} disagree"
        case Verdict.INCOMPLETE:
            lost = sum(party.lost for party in of.parties)
            undecided = (
                f"; {of.counts[Class.LOST]:,} differ, possibly because of lost records" if of.counts[Class.LOST] else ""
            )
            why = f"incomplete, {plural(lost, 'record was', 'records were')} lost"
            return f"by {of.evidence}: {why}; equal: {_equal(of)}{undecided}"
        case Verdict.WITHIN:
            what = _WITHIN.get(of.evidence, "within tolerance")
            return f"by {of.evidence}: {what}, {listed(names)}: {_equal(of)}"
    return f"by {of.evidence}: identical, {listed(names)}: {_equal(of)}"


def _who(first: Difference, names: Sequence[str]) -> str:
    """Name the workers that differ from the majority; without a majority, those that disagree."""
    apart, agree = first.members(Class.DIVERGED), first.agree
    if len(agree) <= len(apart):
        return f"{listed([names[each] for each in sorted(agree + apart)])} disagree"
    verb = "differ" if len(apart) > 1 else "differs"
    return f"{listed([names[each] for each in apart])} {verb} from {len(agree)} that agree"


def _equal(of: Comparison) -> str:
    sites = sum(any(site.classes[: Class.DIVERGED + 1]) for site in of.matched.sites)
    within = of.counts[Class.WITHIN]
    more = f", {within:,} of them {_apart(of)}" if within else ""
    return f"{plural(of.compared - of.counts[Class.DIVERGED], 'comparison')} at {plural(sites, 'site')}{more}"


def _apart(of: Comparison) -> str:
    return _APART.get(of.evidence, "different by rounding")


def explained(difference: Difference) -> str:
    """Say where a difference was born, and why."""
    judgement = difference.judgement
    text = f"relative error {_error(judgement.error)}{_rounding(difference)}; {_born(difference)}"
    if judgement.verdict == Verdict.ROUTING:
        text = f"other experts were chosen; {_born(difference)}"
    return text if judgement.not_finite is None else f"{text}; {_NOT_FINITE[judgement.not_finite]}"


def _rounding(difference: Difference) -> str:
    contents = difference.row.contents
    known = "pass a different backend= in each worker to tell brickd"
    if contents:
        shown = plural(contents, "input shows", "inputs show")
        known = f"{shown} this, expected {CONTENTS_MIN}; or {known}"
    return f" ({_ROUNDING}: {known})" if difference.judgement.rounding else ""


def before(of: Comparison) -> str | None:
    """Say what was compared before the first difference."""
    if of.first is None:
        return None
    identical, within, not_comparable = of.first.row.before
    more = f", {within:,} of them {_apart(of)}" if within else ""
    text = f"equal up to there: {plural(identical + within, 'comparison')}{more}"
    if not identical + within:
        text = "nothing was compared before this difference"
    return f"{text}; {not_comparable:,} earlier comparisons were not possible" if not_comparable else text


def _born(difference: Difference) -> str:
    inputs = difference.judgement.inputs_error
    match difference.judgement.blame:
        case Blame.CULPRIT if inputs:
            return f"the difference began there: the inputs differ by only {_error(inputs)}"
        case Blame.CULPRIT:
            return "the difference began there: the inputs were equal"
        case Blame.HERE_OR_CACHE:
            return "the difference began there or in a cache: the recorded inputs were equal"
        case Blame.PROPAGATED:
            return f"the difference began earlier: the inputs already differ ({_error(inputs)})"
    if not (difference.against.inputs and difference.worst.inputs):
        return "where the difference began is unknown: the inputs were not recorded"
    return f"where the difference began is unknown: the inputs differ by {_error(inputs)}"


def diagnosis(of: Comparison, site: Site, difference: Difference) -> str:
    """Describe one difference: the expected and the actual value, and the worker of each."""
    expected, actual = of.parties[difference.expected].name, of.parties[difference.actual].name
    return (
        f"{place(of, site, difference)}: expected {difference.against.output['checksum']:016x} ({expected}), actual"
        f" {difference.worst.output['checksum']:016x} ({actual}); {explained(difference)}"
    )


def _error(value: float | None) -> str:
    return "not known" if value is None or not math.isfinite(value) else relative(value)


def after(of: Comparison, follow: int | None, born: int) -> str | None:
    """Say how many later sites also differ (`follow`), and at how many other sites a difference was born (`born`)."""
    where = "site within it" if of.evidence == EvidenceClass.ROW else "later site"
    parts = [plural(follow, f"{where} also differs", f"{where.replace('site', 'sites')} also differ")] if follow else []
    parts += [f"a difference also began at {plural(born, 'other site')}"] if born else []
    return "; ".join(parts) or None


def nothing(tried: Comparison) -> str:
    """Say why nothing can be compared."""
    names = [party.name for party in tried.parties]
    silent = [name for name, found in zip(names, tried.matched.workers, strict=True) if not found.fingerprints]
    if len(names) - len(silent) < 2:
        if any(steps is not None for steps in tried.steps):
            return f"{_absent(tried, silent)}{_try(tried)}"
        return (
            f"no fingerprints of {listed(silent)} are recorded, expected fingerprints of two workers or more (call"
            f" {_CALLS.get(tried.evidence, 'brick.checksum')} in the engine)"
        )
    paired = f"0 of {plural(tried.matched.fingerprints, 'fingerprint')} have a counterpart in another worker"
    if tried.not_comparable:
        paired = f"{sum(tried.not_comparable.values()):,} fingerprints with a counterpart may differ"
    why = ", ".join([paired, *_reasons(tried)])
    return f"nothing of {listed(names)} can be compared by {tried.evidence}: {why}{_next(tried)}"


def outputs_not_compared(tried: Comparison) -> str:
    """Say why no output was compared, and what to do."""
    fingerprints = tried.matched.fingerprints
    if not fingerprints and any(steps is not None for steps in tried.steps):
        return f"outputs unproven: {_absent(tried, [party.name for party in tried.parties])}{_try(tried)}"
    if not fingerprints:
        return "outputs unproven: no fingerprints are recorded (call brick.checksum in the engine)"
    lone = sum(site.lone for site in tried.matched.sites)
    alone = [f"{lone:,} without a counterpart in another worker"] if lone else []
    reasons = ", ".join([*_reasons(tried), *alone])
    return f"outputs unproven (0 of {plural(fingerprints, 'fingerprint')} compared): {reasons}{_next(tried)}"


def _absent(tried: Comparison, silent: Sequence[str]) -> str:
    """Say which workers have no fingerprints of the step in the query, and which steps each worker has."""
    of: dict[str, list[str]] = {}
    for party, steps in zip(tried.parties, tried.steps, strict=True):
        of.setdefault(_range(steps, tried.step_texts), []).append(party.name)
    have = "; ".join(f"{listed(names)} {'has' if len(names) == 1 else 'have'} {steps}" for steps, names in of.items())
    return f"step {tried.step_texts.name(tried.step or 0)} has no fingerprints of {listed(silent)}; {have}"


def _range(steps: Collection[int] | None, texts: StepTexts) -> str:
    """Describe a worker's steps. Steps that are digests have no order, so only an example is given.

    >>> [_range(steps, StepTexts()) for steps in ([3], [4, 2, 3], [4, 2], [5, 1 << 63])]
    ['step 3', 'steps 2 to 4', '2 steps from 2 to 4', '2 steps, such as 5']
    """
    if not steps:
        return "no fingerprints" if steps is None else "fingerprints without a step"
    few = sorted(steps)
    if len(few) == 1:
        return f"step {texts.name(few[0])}"
    if few[-1] >= HASHED:
        return f"{len(few):,} steps, such as {texts.name(few[0])}"
    if few[-1] - few[0] == len(few) - 1:
        return f"steps {few[0]} to {few[-1]}"
    return f"{len(few):,} steps from {few[0]} to {few[-1]}"


def _try(tried: Comparison) -> str:
    """Suggest the newest step that two workers have."""
    times = Counter(each for of in tried.steps for each in of or ())
    common = [each for each, workers in times.items() if workers > 1]
    if not common:
        return "; no step was recorded in two workers (leave out --step)"
    newest = max((each for each in common if each < HASHED), default=min(common))
    return f" (--step {tried.step_texts.argument(newest)}, or leave out --step)"


def _next(tried: Comparison) -> str:
    """Suggest `--by run`. Only the user knows whether the workers did the same work in the same steps."""
    return "" if tried.evidence == EvidenceClass.RUN else " (if the workers did the same work: --by run)"


def _reasons(of: Comparison) -> Iterator[str]:
    found = of.matched
    for reason, count in of.not_comparable.items():
        yield f"{count:,} {REASONS[reason]}"
    bare = sum(site.bare for site in found.sites)
    if bare:
        yield f"{bare:,} without inputs"
    if of.evidence == EvidenceClass.RUN and not found.steps.shared and found.steps.lone:
        yield f"no {noun(found.steps.lone, 'step')} in common"
