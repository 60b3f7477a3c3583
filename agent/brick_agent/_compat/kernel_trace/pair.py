"""One trace of each of two runs, beside each other: what it comes to, and where a difference was born.

Owns: the words for both, and the rules that lead to them. Must not know: which traces stand beside each other.
Invariants: nothing is equal that was not compared; nobody is blamed where the inputs are not known to be equal. Words
and rules are those of `brickd diff --by run`, but that no tolerance is there unless one is asked for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from brick_agent._compat.kernel_trace.trace import KernelTrace
from brick_agent._core import Fingerprint

IDENTICAL, WITHIN, DIVERGED, NOT_COMPARABLE = "identical", "within", "diverged", "not_comparable"
CULPRIT, PROPAGATED, UNKNOWN = "culprit", "propagated", "unknown"
_BORN, _PASSED_ON = "born", "passed_on"


@dataclass(frozen=True, slots=True)
class TracePair:
    """One trace of each run, of the same kernel, layer and position, for the same time.

    Attributes:
        expected: the reference's.
        actual: what is compared with it.
        occurrence: how many there were of that kernel, layer and position before.
        verdict: identical, within, diverged or not_comparable.
        reason: why it is not comparable.
        relative_error: of the output, estimated from the sketches; 0: equal; None: not known.
        blame: of what diverged. culprit: born there, for the inputs were equal, or in a state that no input shows;
            propagated: the inputs differ; unknown.
        not_finite: where NaN and infinities come from that only one of both has: born, passed_on or unknown.
        born: the first culprit before what is propagated, if there is one.
    """

    expected: KernelTrace
    actual: KernelTrace
    occurrence: int
    verdict: str
    reason: str | None = None
    relative_error: float | None = None
    blame: str | None = None
    not_finite: str | None = None
    born: TracePair | None = None


def judged(
    expected: KernelTrace, actual: KernelTrace, occurrence: int, rtol: float, born: TracePair | None, uneven: bool
) -> TracePair:
    a, b = expected.output, actual.output
    reason = _incomparable(expected, actual)
    if reason is not None or a is None or b is None:
        return TracePair(expected, actual, occurrence, NOT_COMPARABLE, reason)
    if _same(a, b):
        return TracePair(expected, actual, occurrence, IDENTICAL, relative_error=0.0)
    if uneven:  # which of them belong together nobody knows
        return TracePair(expected, actual, occurrence, NOT_COMPARABLE, "repeats")
    error = relative_error(a, b)
    if rtol > 0 and _is_float(a) and _is_float(b):
        if error is not None and error <= rtol:
            return TracePair(expected, actual, occurrence, WITHIN, relative_error=error)
        if error is None and _odd(a) == _odd(b):
            return TracePair(expected, actual, occurrence, NOT_COMPARABLE, "range")
    blame = _blame(expected, actual, rtol)
    return TracePair(
        expected,
        actual,
        occurrence,
        DIVERGED,
        relative_error=error,
        blame=blame,
        not_finite=_not_finite(expected, actual),
        born=born if blame == PROPAGATED else None,
    )


def _incomparable(expected: KernelTrace, actual: KernelTrace) -> str | None:
    """Why two are not comparable, in the words of `brickd diff`; None: they are."""
    a, b = expected.output, actual.output
    if a is None or b is None:
        return "unchecked"
    if expected.key != actual.key or not actual.key:
        return "key"
    shapes = (expected.shape, actual.shape)
    if a.elements != b.elements and expected.valid == actual.valid:
        return "shape"
    if None not in shapes and shapes[0] != shapes[1]:
        return "shape"
    if expected.valid != actual.valid:
        return "valid"
    if expected.params != actual.params:
        return "params"
    return "dtype" if a.dtype != b.dtype and not (_is_float(a) and _is_float(b)) else None


def _same(a: Fingerprint, b: Fingerprint) -> bool:
    return a.checksum == b.checksum and a.dtype == b.dtype


def _is_float(of: Fingerprint) -> bool:
    """So is bfloat16."""
    return "float" in of.dtype


def _odd(of: Fingerprint) -> tuple[int, int, int]:
    return of.nan, of.pos_inf, of.neg_inf


def relative_error(a: Fingerprint, b: Fingerprint) -> float | None:
    """How far a tensor is from what it is held against, in parts of that; None: the sketches do not tell."""
    if _same(a, b):
        return 0.0
    if a.elements != b.elements or _odd(a) != _odd(b):
        return None
    distance = math.dist(a.sketch, b.sketch)
    norm = a.l2 if a.l2 > 0 else b.l2
    if distance == 0:
        return 0.0
    return distance / norm if 0 < norm < math.inf and math.isfinite(distance) else None


def _blame(expected: KernelTrace, actual: KernelTrace, rtol: float) -> str:
    """Where a difference was born."""
    some, others = expected.inputs, actual.inputs
    if not some or len(some) != len(others):
        return UNKNOWN
    if all(map(_same, some, others)):
        return CULPRIT
    errors = [relative_error(a, b) for a, b in zip(some, others, strict=True)]
    explain = rtol <= 0 or any(each is None or each > rtol for each in errors)
    return PROPAGATED if explain else UNKNOWN


def _not_finite(expected: KernelTrace, actual: KernelTrace) -> str | None:
    a, b = expected.output, actual.output
    if a is None or b is None or _odd(a) == _odd(b):
        return None
    if not expected.inputs or len(expected.inputs) != len(actual.inputs):
        return UNKNOWN
    alike = all(_odd(one) == _odd(other) for one, other in zip(expected.inputs, actual.inputs, strict=True))
    return _BORN if alike else _PASSED_ON
