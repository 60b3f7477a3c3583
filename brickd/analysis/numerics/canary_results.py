"""The results of canaries: decoded, and compared between the workers of a service.

Owns: what a result may contain, when two results can be compared, who is an outlier. Must not know: orders, segments.
Invariants: a result is hostile until it is decoded; results are compared only if the model, the input, the context and
the sites are equal; what is not compared is never equal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from brickd.base.json_values import document, listed, number, optional, require, unicode, validating, whole
from brickd.shm import _reader

EQUAL, DIFFERS, DISAGREES, NOT_COMPARED = "equal", "differs", "disagrees", "not compared"
ENDS = ("running", "done", "refused", "off", "stuck")
_LABEL_MAX, _REASON_MAX, _CONTEXT_MAX = 128, 400, 2_000
_KEYS = {"order", "name", "end", "reason", "input", "model", "context", "sites", "slices", "spent_s", "longest_s"}
_ALIKE = ("input", "model", "context")


class SiteDigest(NamedTuple):
    """What a canary computed at one site."""

    kernel: str
    layer: int | None
    prompt: str
    forced: str


class CanaryAnswer(NamedTuple):
    """The answer of a worker to an order."""

    order: int
    name: str
    end: str
    reason: str | None = None
    input: str = ""
    model: str = ""
    context: str = ""
    sites: tuple[SiteDigest, ...] = ()
    slices: int = 0
    spent_s: float = 0.0
    longest_s: float = 0.0

    @property
    def places(self) -> list[tuple[str, int | None]]:
        """The sites, without what was computed."""
        return [(each.kernel, each.layer) for each in self.sites]


class CanaryVerdict(NamedTuple):
    """How a result compares with those of other workers.

    Attributes:
        why: why it was not compared.
        first: the first site that differs, in the order of the computation, and the part: prompt or forced.
    """

    verdict: str
    why: str | None = None
    first: tuple[str, int | None, str] | None = None


def decoded(content: bytes) -> CanaryAnswer:
    """Decode the JSON of a worker; raise a ValueError if it is invalid."""
    with validating():
        found = document(content, _reader.CANARY_MAX)
        require(isinstance(found, dict) and found.keys() == _KEYS, f"the keys {sorted(_KEYS)}", found)
        require(found["end"] in ENDS, f"one of {ENDS}", found["end"])
        sites = tuple(map(_site, listed(found["sites"], _reader.CANARY_MAX)))
        require(not sites or found["end"] == "done", "sites only of a canary that is done", found["end"])
        return CanaryAnswer(
            whole(found["order"], 1, 2**32 - 1),
            _text(found["name"], _LABEL_MAX),
            found["end"],
            optional(found["reason"], lambda value: _text(value, _REASON_MAX)),
            _text(found["input"], _LABEL_MAX),
            _text(found["model"], _LABEL_MAX),
            _text(found["context"], _CONTEXT_MAX),
            sites,
            whole(found["slices"], most=2**31),
            number(found["spent_s"]),
            number(found["longest_s"]),
        )


def _site(value: Any) -> SiteDigest:
    kernel, layer, prompt, forced = listed(value, 4)
    return SiteDigest(
        _text(kernel, _LABEL_MAX),
        optional(layer, lambda found: whole(found, most=2**24)),
        _text(prompt, _LABEL_MAX),
        _text(forced, _LABEL_MAX),
    )


def _text(value: Any, most: int) -> str:
    require(len(unicode(value)) <= most, f"at most {most} characters", value)
    return str(value)


def compare(found: Sequence[CanaryAnswer]) -> list[CanaryVerdict]:
    """Compare the results of one canary in the workers of one service; return the verdict on each."""
    return [_judged(each, found) for each in found]


def _judged(one: CanaryAnswer, found: Sequence[CanaryAnswer]) -> CanaryVerdict:
    if one.end != "done":
        return CanaryVerdict(NOT_COMPARED, f"{one.end}: {one.reason}" if one.reason else one.end)
    if not one.sites:
        return CanaryVerdict(NOT_COMPARED, "it has no site")
    done = [each for each in found if each.end == "done"]
    alike = [each for each in done if _unlike(one, each) is None]
    if len(alike) < 2:
        others = Counter(_unlike(one, each) for each in done if each is not one)
        why = f"another {others.most_common(1)[0][0]} than other workers" if others else "no other worker has a result"
        return CanaryVerdict(NOT_COMPARED, why)
    (most, count), *_ = Counter(each.sites for each in alike).most_common(1)
    if count == len(alike) or (count * 2 > len(alike) and one.sites == most):
        return CanaryVerdict(EQUAL)
    if count * 2 > len(alike):
        return CanaryVerdict(DIFFERS, first=_first(one.sites, most))
    other = next(each.sites for each in alike if each.sites != one.sites)
    return CanaryVerdict(DISAGREES, first=_first(one.sites, other))


def _unlike(one: CanaryAnswer, other: CanaryAnswer) -> str | None:
    """Return why two results cannot be compared; None if they can."""
    for name in _ALIKE:
        if getattr(one, name) != getattr(other, name):
            return name
    return None if one.places == other.places else "list of sites"


def _first(one: Sequence[SiteDigest], other: Sequence[SiteDigest]) -> tuple[str, int | None, str]:
    """Return the first site that differs. A canary computes the prompt at all sites, and then the forced tokens."""
    for part in ("prompt", "forced"):
        for mine, theirs in zip(one, other, strict=True):
            if getattr(mine, part) != getattr(theirs, part):
                return mine.kernel, mine.layer, part
    raise ValueError("the results are equal")
