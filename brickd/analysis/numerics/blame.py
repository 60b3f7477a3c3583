"""The judgement of a row of fingerprints: the verdict, and where the difference was born.

Owns: the words for the verdict and for the origin, and the rules that choose them. Must not know: how rows are made,
workers' names, screens. Invariants: A worker is blamed only if its inputs equal those of the other worker, or if they
differ too little to explain why the outputs differ. If an operator may have read state that is not an input, the
judgement says so.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from brickd.analysis.numerics.match import Class, MatchRow
from brickd.model.step_texts import StepTexts
from brickd.shm import _reader, records
from brickd.shm.sites import Site, is_stateful

# Operators rarely amplify the error of their inputs by more than this factor.
_MANY_TIMES = 8.0

_INTEGERS = frozenset(range(records.DTYPES.index("int8"), records.DTYPES.index("uint64") + 1))
_ROUTES = re.compile(r"rout(?!in)|routing|expert|top_?k|(?<![a-z])moe(?![a-z])", re.IGNORECASE)


class Verdict(StrEnum):
    """The result of one comparison, or of many comparisons."""

    IDENTICAL = "identical"
    WITHIN = "within"
    DIVERGED = "diverged"
    ROUTING = "routing"  # the router chose other experts, so later outputs differ, too
    NOT_COMPARABLE = "not_comparable"
    INCOMPLETE = "incomplete"  # records were lost; the rest is too little for a verdict

    @property
    def differs(self) -> bool:
        """Whether it is certain that the results differ by more than rounding."""
        return self in (Verdict.DIVERGED, Verdict.ROUTING)


class Blame(StrEnum):
    """Where a difference was born."""

    CULPRIT = "culprit"  # at this site: the inputs were equal
    HERE_OR_CACHE = "here_or_cache"  # at this site, or in state that is not an input, like a cache
    PROPAGATED = "propagated"  # before this site: the inputs already differ
    UNKNOWN = "unknown"


class NotFinite(StrEnum):
    """Where NaN and infinities come from, if the two outputs have different numbers of them."""

    BORN = "born"
    PASSED_ON = "passed_on"
    UNKNOWN = "unknown"


class DecodedFingerprint(NamedTuple):
    """A decoded record, the index of its worker, and the digest of its site."""

    worker: int
    site: int
    record: Mapping[str, Any]

    @property
    def output(self) -> Mapping[str, Any]:
        """The fingerprint of the output."""
        tensor: Mapping[str, Any] = self.record["tensors"][0]
        return tensor

    @property
    def inputs(self) -> Sequence[Mapping[str, Any]]:
        """The fingerprints of the inputs."""
        tensors: Sequence[Mapping[str, Any]] = self.record["tensors"]
        return tensors[1:]

    @property
    def token(self) -> int | None:
        """For a row with a history: the position of its token in the sequence; None if it was redacted."""
        token: int = self.record["output"]["token"]
        return token - 1 if token else None

    @property
    def position(self) -> int:
        """The position of a row's token if it is known, else the position in the record."""
        position: int = self.record["position"]
        return position if self.token is None else self.token

    def document(self, texts: StepTexts) -> dict[str, Any]:
        """The fingerprint as JSON, without its worker."""
        record, shown = self.record, records.tensor_document(self.output)
        has_step = record["step"] != 0 or record["flags"] & _reader.CHECKED_STEP != 0
        return {
            **texts.members(record["step"] if has_step else None),
            "position": self.position,
            **shown,
            "fnv1a": records.seeds_checksum(record["output"]),
            "shape": list(record["output"]["shape"][: record["output"]["dims"]]),
        }


def read(fingerprints: _reader.Fingerprints, number: int) -> DecodedFingerprint | None:
    """Return the fingerprint with this sequence number; None if it was evicted."""
    found = fingerprints.read(number)
    if found is None:
        return None
    worker, site, slots = found
    (record,), _ = records.events(slots)
    return DecodedFingerprint(worker, site, record)


class Judgement(NamedTuple):
    """The judgement of a row.

    Attributes:
        blame: where the difference was born; None if nothing differs.
        not_finite: where NaN or infinities come from; None if both outputs have the same numbers of them.
        error: the estimated relative error of the output; None if unknown.
        inputs_error: the largest error of an input; 0 if the inputs are equal, None if unknown.
        rounding: whether summing the same values in another order explains the error.
    """

    verdict: Verdict
    blame: Blame | None = None
    not_finite: NotFinite | None = None
    error: float | None = None
    inputs_error: float | None = None
    rounding: bool = False


def judged(row: MatchRow, site: Site, against: DecodedFingerprint, worst: DecodedFingerprint) -> Judgement:
    """Judge a row: compare its reference with the member that differs most from it."""
    class_ = Class(row.class_)
    if class_ == Class.LOST:
        return Judgement(Verdict.INCOMPLETE)
    if not class_.comparable:
        return Judgement(Verdict.NOT_COMPARABLE)
    if class_ == Class.IDENTICAL:
        return Judgement(Verdict.IDENTICAL, error=0.0, inputs_error=row.inputs_error)
    verdict = Verdict.WITHIN
    if class_ == Class.DIVERGED:
        # If a router's output is integers, they name the experts that run next.
        routes = against.output["dtype"] in _INTEGERS and _ROUTES.search(site.kernel) is not None
        verdict = Verdict.ROUTING if routes else Verdict.DIVERGED
    return Judgement(
        verdict,
        blame=blame(site, against, worst, row) if verdict.differs else None,
        not_finite=not_finite(against, worst),
        error=row.error,
        inputs_error=row.inputs_error,
        rounding=verdict.differs and row.error is not None and 0 < (row.rounding or 0) >= row.error,
    )


def blame(site: Site, one: DecodedFingerprint, other: DecodedFingerprint, row: MatchRow) -> Blame:
    """Return where the difference between two outputs was born."""
    here = Blame.HERE_OR_CACHE if _stateful(site, one) or _stateful(site, other) else Blame.CULPRIT
    if not (_given(one) and _given(other)):
        return Blame.UNKNOWN
    if _equal(one.inputs, other.inputs):
        return here
    if one.record["flags"] & _reader.CHECKED_HISTORY:  # such rows must be equal to the last bit
        return Blame.PROPAGATED
    if row.inputs_error is None:
        # A record has room for the sketches of a few inputs. All further inputs share one checksum without a sketch.
        return Blame.UNKNOWN if _more(one) or _more(other) else Blame.PROPAGATED
    if row.tolerance is None or row.inputs_error > row.tolerance:
        return Blame.PROPAGATED
    # The inputs differ only by rounding. Even rounding can make an operator like argmax choose another element.
    chooses = one.output["dtype"] in _INTEGERS
    explained = chooses or _more(one) or _more(other)
    far = row.error is None or row.error > _MANY_TIMES * row.inputs_error
    return here if far and not explained else Blame.UNKNOWN


def not_finite(one: DecodedFingerprint, other: DecodedFingerprint) -> NotFinite | None:
    """Return the origin of NaN and infinities if the two outputs have different numbers of them, else None."""
    if _not_finite(one.output) == _not_finite(other.output):
        return None
    if not (_given(one) and _given(other)) or len(one.inputs) != len(other.inputs):
        return NotFinite.UNKNOWN
    alike = all(_not_finite(a) == _not_finite(b) for a, b in zip(one.inputs, other.inputs, strict=True))
    if alike and (_more(one) or _more(other)):
        return NotFinite.UNKNOWN
    return NotFinite.BORN if alike else NotFinite.PASSED_ON


def _given(one: DecodedFingerprint) -> bool:
    return bool(one.inputs) and all(each["dtype"] for each in one.inputs)


def _more(one: DecodedFingerprint) -> bool:
    return bool(one.record["flags"] & _reader.CHECKED_MORE)


def _stateful(site: Site, one: DecodedFingerprint) -> bool:
    """Whether the output may depend on state.

    A flag of the call decides. If the call has no such flag, the name of the site decides.
    """
    flags = one.record["flags"]
    return bool(flags & _reader.CHECKED_STATEFUL or (is_stateful(site) and not flags & _reader.CHECKED_STATELESS))


def _equal(some: Sequence[Mapping[str, Any]], others: Sequence[Mapping[str, Any]]) -> bool:
    one, other = ([(each["dtype"], each["checksum"]) for each in tensors] for tensors in (some, others))
    return one == other


def _not_finite(tensor: Mapping[str, Any]) -> tuple[int, int, int]:
    return tensor["nan"], tensor["pos_inf"], tensor["neg_inf"]
