"""Judges the reports of brickd about a cell: which are true, and which are false.

Owns: where a status document has its verdicts, when a fault counts as found, and which alarms are false. Must not know:
processes, models. Invariants: a problem is false if it names a worker without a fault, or if the fault does not explain
its kind.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from benchmarks.faulty.frozen import ALARMS, HEALTHY, NUMERIC, TIMING, WANTED, Wanted

BEFORE, DURING, AFTER = "before", "during", "after"
_TEXTS = (  # finds the kind of a problem from its text, for versions of brickd whose problems have no kind
    ("weights", re.compile(r"^weights: ")),
    ("straggler", re.compile(r" slow since | waits for a processor ")),
    ("stuck", re.compile(r"\bstuck\b")),
    ("memory", re.compile(r"\bmemory grows\b")),
    ("slower", re.compile(r"\bslower\b")),
    ("numbers", re.compile(r"differs? from the others|\bdisagree\b|contradicts itself")),
    ("nan", re.compile(r"\b(NaN|Inf)\b")),
)
_PLACE = re.compile(r"([\w*]+(?:\.[\w*]+)+)(?: \(?layer (\d+))?")


class Site(NamedTuple):
    """A place: the name of a brick, operator or tensor without its layer number, and the layer number."""

    name: str
    layer: int | None

    def __str__(self) -> str:
        return self.name if self.layer is None else f"{self.name} layer {self.layer}"


class Alarm(NamedTuple):
    """A problem that is a verdict on a worker."""

    kind: str
    workers: tuple[str, ...]
    text: str


@dataclass(frozen=True)
class Look:
    """A status at one time.

    Attributes:
        phase: BEFORE, DURING or AFTER the fault.
        at_s: the time since the phase began.
        status: the document.
    """

    phase: str
    at_s: float
    status: Mapping[str, Any]


@dataclass(frozen=True)
class Truth:
    """The truth about a cell.

    Attributes:
        fault: one of WANTED, or HEALTHY.
        worker: the name of the worker with the fault.
        scope: the qualified names of the wrong modules or tensors.
        detail: the description of the fault.
        differs: whether an answer of the worker differed from the others.
        wanted: what brickd must report; if None, WANTED says it.
    """

    fault: str
    worker: str = ""
    scope: tuple[str, ...] = ()
    detail: str = ""
    differs: bool = False
    wanted: Wanted | None = None


@dataclass
class Verdict:
    """The judgement of a cell.

    Attributes:
        found_s: the time from the injection until the fault was reported, for any worker.
        named_s: the time from the injection until brickd named the right worker and no other; None if it never did.
        text: the first problem that named the right worker.
        kinds: the kinds of the problems that named the right worker.
        right_place: whether every named place is right; None if the fault has no place, or was not found.
        false_before: the problems that were reported before the fault, each only once.
        wrong_during: problems during the fault that the fault does not explain.
        false_after: the problems that were reported after the fault was removed.
        false_numeric: how many of false_before and false_after are about tensors.
        false_stragglers: how many of false_before and false_after are about time.
        other_problems: the texts of all problems that are not about a worker's work.
        compared: the number of comparisons by inputs until the removal.
        compared_weights: the number of comparisons by weights until the removal.
        unproven: whether outputs were reported as unproven; None if this version of brickd cannot report that.
    """

    found_s: float | None = None
    named_s: float | None = None
    text: str = ""
    kinds: list[str] = field(default_factory=list)
    right_place: bool | None = None
    false_before: list[str] = field(default_factory=list)
    wrong_during: list[str] = field(default_factory=list)
    false_after: list[str] = field(default_factory=list)
    false_numeric: int = 0
    false_stragglers: int = 0
    other_problems: list[str] = field(default_factory=list)
    compared: int = 0
    compared_weights: int = 0
    unproven: bool | None = None


def kind(problem: Mapping[str, Any]) -> str:
    """Return the kind of a problem; for an older version of brickd, find it from the text."""
    said = problem.get("kind")
    if said is not None:
        return str(said)
    return next((name for name, pattern in _TEXTS if pattern.search(problem["text"])), "other")


def alarms(status: Mapping[str, Any]) -> list[Alarm]:
    """Return the problems that are verdicts on workers."""
    return [
        Alarm(kind(each), _named(each, status), each["text"]) for each in status["problems"] if kind(each) in ALARMS
    ]


def _named(problem: Mapping[str, Any], status: Mapping[str, Any]) -> tuple[str, ...]:
    if problem.get("workers"):
        return tuple(problem["workers"])
    words = set(re.split(r"[\s,:;()]+", problem["text"]))
    return tuple(sorted(each["name"] for each in status["workers"] if each["name"] in words))


def site(qualified: str) -> Site:
    """Return the place of a module or a tensor: "model.layers.17.mlp" is "model.layers.*.mlp" at layer 17."""
    words = qualified.split(".")
    at = next((number for number, word in enumerate(words) if word.isdecimal()), None)
    if at is None:
        return Site(qualified, None)
    return Site(".".join((*words[:at], "*", *words[at + 1 :])), int(words[at]))


def within(found: Site, scope: Iterable[str]) -> bool:
    """Return whether a place is in the scope: a module of the scope, something inside one, or something around one up
    to its layer.
    """
    for each in map(site, scope):
        if found.layer not in (None, each.layer):
            continue
        wanted, seen = _words(each.name), _words(found.name)
        least = wanted.index("*") + 1 if "*" in wanted else len(wanted)
        common = min(len(wanted), len(seen))
        if wanted[:common] == seen[:common] and len(seen) >= least:
            return True
    return False


def exactly(found: Site, scope: Iterable[str]) -> bool:
    """Return whether a place is one of these modules or tensors."""
    return any(found.layer == each.layer and _words(found.name) == _words(each.name) for each in map(site, scope))


def _words(name: str) -> list[str]:
    words = name.split(".")
    # brickd omits a leading `model` from an operator's name
    return words[1:] if words[0] == "model" and len(words) > 1 else words


def sites(status: Mapping[str, Any], worker: str) -> list[Site]:
    """Return the places where the worker differs, those found by weights first, then the bricks in which it is slow."""
    found = []
    for key in ("weights", "diverged"):
        about = [each for each in status.get(key) or () if list(each["outliers"]) == [worker]]
        found += [Site(each["kernel"], each["layer"]) for each in about[:1]]
    found += [Site(each["brick"], None) for each in status["stragglers"] or () if each["worker"] == worker]
    return found


def compared(status: Mapping[str, Any], evidence: str) -> int:
    """Return how much was compared by weights or by inputs."""
    parts = [each[evidence] for each in status["numerics"] or () if each[evidence] is not None]
    return sum(each["compared"] for each in parts)


def unproven(status: Mapping[str, Any], evidence: str = "input") -> bool | None:
    """Return whether a class of evidence is reported as unproven; None if this version of brickd cannot report that."""
    said = status.get("evidence")
    return None if said is None else any((each["evidence"], each["verdict"]) == (evidence, "unproven") for each in said)


def judged(looks: Sequence[Look], truth: Truth) -> Verdict:
    """Judge all looks at a cell."""
    verdict = Verdict()
    known: set[tuple[str, tuple[str, ...]]] = set()
    for look in looks:
        for each in alarms(look.status):
            if _reports(each, truth, look):
                _found(verdict, each, truth, look)
            if not _true(each, truth, look.phase) and (each.kind, each.workers) not in known:
                known.add((each.kind, each.workers))
                _false(verdict, each, look.phase)
        texts = (each["text"] for each in look.status["problems"] if kind(each) not in ALARMS)
        verdict.other_problems += [text for text in texts if text not in verdict.other_problems]
        if look.phase != AFTER:
            verdict.compared = compared(look.status, "input")
            verdict.compared_weights = compared(look.status, "weights")
            verdict.unproven = unproven(look.status)
    return verdict


def _true(alarm: Alarm, truth: Truth, phase: str) -> bool:
    if truth.fault == HEALTHY or phase == BEFORE or alarm.workers != (truth.worker,):
        return False
    wanted = truth.wanted or WANTED[truth.fault]
    return alarm.kind in wanted.kinds | wanted.also


def _reports(alarm: Alarm, truth: Truth, look: Look) -> bool:
    if look.phase != DURING or truth.worker not in alarm.workers:
        return False
    wanted = truth.wanted or WANTED[truth.fault]
    words = wanted.words
    return alarm.kind in wanted.kinds and (not words or any(re.search(rf"\b{word}\b", alarm.text) for word in words))


def _found(verdict: Verdict, alarm: Alarm, truth: Truth, look: Look) -> None:
    if verdict.found_s is None:
        verdict.found_s = look.at_s
    if alarm.workers != (truth.worker,):
        return
    if verdict.named_s is None:
        verdict.named_s, verdict.text = look.at_s, alarm.text
    if alarm.kind not in verdict.kinds:
        verdict.kinds.append(alarm.kind)
    if truth.scope:
        places = [*sites(look.status, truth.worker), *_places(alarm)]
        verdict.right_place = bool(verdict.right_place) or any(within(each, truth.scope) for each in places)
    elif truth.fault == "pinned":
        verdict.right_place = bool(verdict.right_place) or re.search(rf"\b{truth.detail}\b", alarm.text) is not None


def _places(alarm: Alarm) -> list[Site]:
    """Return the places in the text of an alarm. If an alarm about numbers names a kernel that many layers use, it must
    also name the layer.
    """
    found = [Site(name, int(layer) if layer else None) for name, layer in _PLACE.findall(alarm.text)]
    return [each for each in found if alarm.kind not in NUMERIC or each.layer is not None or "*" not in each.name]


def _false(verdict: Verdict, alarm: Alarm, phase: str) -> None:
    {BEFORE: verdict.false_before, DURING: verdict.wrong_during, AFTER: verdict.false_after}[phase].append(alarm.text)
    if phase != DURING:
        verdict.false_numeric += alarm.kind in NUMERIC
        verdict.false_stragglers += alarm.kind in TIMING
