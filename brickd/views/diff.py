"""The view `diff`: where workers' numbers differ first, and which worker is at fault.

Owns: which workers are compared, which evidence leads if the query names none. Must not know: how rows are made, the
schema of the document, screens. Invariants: A verdict names its kind of evidence. If nothing can be compared, the
verdict says so and gives the reason. The verdict is then never "equal". Steps are paired only if the query requests
evidence by run. Data that was not compared is reported.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple, Protocol

from brickd.analysis.numerics import diagnosis
from brickd.analysis.numerics.blame import Verdict
from brickd.analysis.numerics.comparison import Comparison, EvidenceClass, Party, compare
from brickd.analysis.numerics.fingerprints import Numerics
from brickd.analysis.numerics.online_state import Compared
from brickd.analysis.weights.verdicts import WeightsVerdict
from brickd.base.units import listed, plural
from brickd.errors import WrongQuestion
from brickd.model.workers import Survey, Worker, select
from brickd.query.queries import DiffQuery, step_number
from brickd.views import diff_evidence, numerics_summary
from brickd.views.common import Answer, Sourced, begun, foreign_words, no_workers
from brickd.views.diff_document import Sides, document, nothing
from brickd.views.diff_evidence import KnownFinding
from brickd.views.diff_weights import Weighed, why_none

_PATTERN = frozenset("*?[")
_CHOICES = 8  # the services that a message without operands lists


class Comparable(Sourced, Protocol):
    """A source of workers that can be compared with each other."""

    def survey(self) -> Survey:
        """All workers, at one moment."""
        ...

    def numerics(self, of: Sequence[Worker]) -> Numerics:
        """The fingerprints of some of the workers."""
        ...

    def compared(self) -> Compared | None:
        """The differences found so far; None if workers are not compared continuously."""
        ...

    def weighed(self, found: Survey) -> Sequence[WeightsVerdict]:
        """The verdicts on the weights of a survey's workers."""
        ...


class NothingCompared(NamedTuple):
    """Why nothing was comparable, the comparison that was tried, and whether the checksums have different keys."""

    why: str
    tried: Comparison | None = None
    keys: bool = False


class ChosenEvidence(NamedTuple):
    """The comparison at sites (None if the query is only about weights), further ones, and whether weights lead."""

    outputs: Comparison | None
    by_weights: bool
    more: Sequence[Comparison] = ()


def answer(world: Comparable, query: DiffQuery) -> Answer:
    """Compare the chosen workers.

    Raises:
        NoSuchWorker: no worker has one of the names.
    """
    found = world.survey()
    asked = meant(found, query.names)
    numerics = world.numerics(asked)
    kept = [each for each in asked if each.reading.alive or each.name in query.names or _known(numerics, each)]
    workers = kept or asked  # if all have ended, and nothing is known of them, the answer names them
    sides = Sides(workers, numerics, _parties(numerics, workers, found, query.since))
    weighed = Weighed.of(numerics.weights, workers)
    some = workers or query.names
    chosen = _chosen(sides, query, weighed) if some else NothingCompared(no_workers(world))
    if isinstance(chosen, NothingCompared):
        verdict = nothing(sides, chosen.why, chosen.tried, weighed, other_keys=chosen.keys)
        verdict |= {"known": []}
        return Answer({**begun(world), **verdict}, found.words + foreign_words(found))
    verdict = document(sides, chosen.outputs, weighed, by_weights=chosen.by_weights, more=chosen.more)
    findings = _findings(world, found, workers)
    verdict["headlines"][1:1] = diff_evidence.headline(findings, verdict["outlier"])
    verdict |= {"known": [each._asdict() for each in findings]}
    return Answer({**begun(world), **verdict}, (*found.words, *_ignored(query, verdict["evidence"])))


def _findings(world: Comparable, found: Survey, workers: Sequence[Worker]) -> list[KnownFinding]:
    """Return a daemon's findings on all workers; empty without a daemon."""
    if world.source != "daemon":
        return []
    called = numerics_summary.called_now(found.workers)
    return diff_evidence.known(world.compared(), world.weighed(found), called, workers)


def _ignored(query: DiffQuery, leads: str) -> Iterator[str]:
    """Report options that have no effect, because another class of evidence leads."""
    if query.rtol is not None and leads != EvidenceClass.RUN:
        yield f"--rtol {query.rtol:g} has no effect: this comparison is by {leads}, expected --by run"


# ---- which workers


def meant(found: Survey, names: Sequence[str]) -> list[Worker]:
    """Return the workers that match a name, a service or a pattern, in the order of the arguments.

    Raises:
        NoSuchWorker: no worker has one of the names.
        WrongQuestion: no worker is named, and there are several services.
    """
    everybody = [worker for worker in found.workers if worker.together == 1]
    if not names:
        services = {worker.service for worker in everybody}
        if len(services) > 1:
            raise WrongQuestion(
                f"there are {len(services)} services, expected one; name a service: {_choices(everybody)}"
            )
        return everybody
    chosen: dict[int, Worker] = {}
    for name in names:
        mine = [each for each in everybody if name in (each.name, each.service) or each.name.startswith(f"{name}/")]
        if not mine and _PATTERN & set(name):
            mine = [worker for worker in everybody if _fits(worker, name)]
        for worker in mine or select(everybody, [name], foreign=found.foreign):
            chosen[id(worker)] = worker
    return list(chosen.values())


def _choices(workers: Sequence[Worker]) -> str:
    """List the services of these workers, sorted by the number of live workers, then by the number of all workers."""
    live = Counter(worker.service for worker in workers if worker.reading.alive)
    numbers = Counter(worker.service for worker in workers)
    order = sorted(numbers, key=lambda name: (-live[name], -numbers[name], name))
    return listed([f"{name} ({plural(numbers[name], 'worker')})" for name in order], _CHOICES)


def _fits(worker: Worker, pattern: str) -> bool:
    """Whether the pattern matches the worker's name. The path of a recording is compared literally."""
    label = worker.label
    return pattern.startswith(label) and fnmatchcase(worker.name[len(label) :], pattern[len(label) :])


def _known(numerics: Numerics, worker: Worker) -> bool:
    producer = numerics.producers.get(worker.reading.uuid)
    return producer is not None and any(producer.newest)


def _parties(numerics: Numerics, workers: Sequence[Worker], found: Survey, since: float | None) -> list[Party]:
    parties = []
    for worker in workers:
        producer = numerics.producers.get(worker.reading.uuid)
        ticks = _ticks(worker, found, since)
        if producer is None:
            parties.append(Party(worker.name, 0, ticks))
        else:
            parties.append(Party(worker.name, producer.number, ticks, numerics.lost(producer), numerics.worn(producer)))
    return parties


def _ticks(worker: Worker, found: Survey, since: float | None) -> int:
    """Return the value of a worker's clock `since` seconds ago; 0 without `since`."""
    if since is None:
        return 0
    reading = worker.reading
    now = reading.now_ticks
    if now is None:
        now = found.clocks.get(reading.header["clock"], (0, 0))[0]
    return max(0, now - round(since * 1e9 / reading.tick_ns))


# ---- which evidence


def _chosen(sides: Sides, query: DiffQuery, weighed: Weighed) -> ChosenEvidence | NothingCompared:
    """Choose the comparison and the evidence that leads. Steps are paired only with `--by run`."""
    if len(sides.workers) < 2:
        only = f"only {sides.workers[0].name}" if sides.workers else "no worker"
        seen = f"the names match {only}" if query.names else f"there is {only}"
        why = f"{seen}, expected two workers or more (brickd workers lists the workers)"
        return NothingCompared(why, None if query.by == "weights" else _by_outputs(sides, query)[0])
    if query.by == "weights":
        return ChosenEvidence(None, by_weights=True) if weighed.known else NothingCompared(why_none(weighed))
    outputs, *more = _by_outputs(sides, query)
    if refused := _other_keys(sides, outputs):
        return refused
    if query.by is None and _weights_lead(query, weighed, outputs):
        return ChosenEvidence(outputs, by_weights=True, more=more)
    if _compares_something(outputs):
        return ChosenEvidence(outputs, by_weights=False, more=more)
    return NothingCompared(diagnosis.nothing(outputs) + _weights_note(weighed), outputs)


def _by_outputs(sides: Sides, query: DiffQuery) -> list[Comparison]:
    """Compare whole tensors and single rows, unless the query names the evidence. The strongest result comes first."""
    step = None if query.step is None else step_number(query.step)
    if query.step is not None:
        sides.numerics.step_texts.add("", query.step.encode(errors="surrogatepass"))

    def by(evidence: EvidenceClass) -> Comparison:
        return compare(sides.numerics, sides.parties, evidence, step=step, rtol=query.rtol)

    if query.by is not None:
        return [by(EvidenceClass(query.by))]
    found = [by(EvidenceClass.INPUT), by(EvidenceClass.ROW), by(EvidenceClass.HISTORY)]
    return sorted((each for each in found if each is found[0] or each.matched.fingerprints), key=_says, reverse=True)


def _says(of: Comparison) -> tuple[bool, bool]:
    return of.diverged > 0, _compares_something(of)


def _weights_lead(query: DiffQuery, weighed: Weighed, outputs: Comparison) -> bool:
    """Whether weights lead if the query names no evidence.

    If weights differ and no output differs, weights lead. If weights are equal and no output was compared, weights lead
    unless the query names a step or a period.
    """
    if weighed.differing:
        return not outputs.diverged
    asks_outputs = query.step is not None or query.since is not None
    return weighed.known and not _compares_something(outputs) and not asks_outputs


def _weights_note(weighed: Weighed) -> str:
    """Return a note with the verdict on weights, for a comparison in which nothing else was comparable."""
    if not weighed.known:
        return f"; {why_none(weighed)}" if weighed.reasons else ""
    verdicts = {Verdict.IDENTICAL: "are equal", Verdict.INCOMPLETE: "are equal as far as they are known"}
    return f"; weights {verdicts.get(weighed.verdict, 'differ')} (--by weights)"


def _compares_something(of: Comparison) -> bool:
    return of.compared > 0 or of.incomplete > 0


def _other_keys(sides: Sides, found: Comparison) -> NothingCompared | None:
    """If the checksums have different keys, return the reason not to compare them; None if all have the same key."""
    # A worker without fingerprints may have no key.
    workers = [worker for worker, each in zip(sides.workers, found.matched.workers, strict=True) if each.fingerprints]
    for other in workers[1:]:
        if other.reading.process["key"] != workers[0].reading.process["key"]:
            why = f"the checksums of {workers[0].name} and {other.name} are made with different keys"
            return NothingCompared(f"{why}, expected the same for both (BRICKD_KEY_FILE)", found, keys=True)
    return None
