"""The comparison of two traces: its verdict, and the origin of a difference.

Owns: the verdicts and their rules. Must not know: which traces are compared. Invariants: a value that was not compared
is never reported as equal; a kernel is the culprit only if its inputs are known to be equal. The words and the rules
are those of `brickd diff --by run`, except that the tolerance is 0 unless one is given.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

from brick_agent._compat.kernel_trace.trace import KernelTrace
from brick_agent._core import Fingerprint

IDENTICAL, WITHIN, DIVERGED, NOT_COMPARABLE = "identical", "within", "diverged", "not_comparable"
CULPRIT, PROPAGATED, UNKNOWN = "culprit", "propagated", "unknown"


@dataclass(frozen=True, slots=True)
class TracePair:
    """Two traces of the same kernel, layer, position and occurrence, one from each run.

    Attributes:
        expected: the reference's trace. actual: the run's trace. occurrence: the number of earlier traces of the same
        kernel, layer and position. verdict: identical, within, diverged or not_comparable. reason: why the pair is not
        comparable. relative_error: the relative error of the output, estimated from the sketches; 0: equal; None:
        unknown. blame: the origin of a divergence. culprit: the inputs were equal, so the difference comes from this
        kernel (or from its state, such as a cache); propagated: its inputs already differ; unknown. not_finite: the
        origin of NaN and infinities that only one trace has: born, passed_on or unknown. born: the first culprit before
        this pair, if the divergence is propagated.
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


def compare_pair(
    expected: KernelTrace, actual: KernelTrace, occurrence: int, rtol: float, born: TracePair | None, uneven: bool
) -> TracePair:
    """Compare two traces.

    `born` is the first culprit; `uneven` says whether the runs have unequal numbers of these traces.
    """
    pair = partial(TracePair, expected, actual, occurrence)
    a, b = expected.output, actual.output
    reason = _incomparable(expected, actual)
    if reason is not None or a is None or b is None:
        return pair(NOT_COMPARABLE, reason)
    if _same(a, b):
        return pair(IDENTICAL, relative_error=0.0)
    if uneven:  # then it is unknown which traces belong together
        return pair(NOT_COMPARABLE, "repeats")
    error = relative_error(a, b)
    if rtol > 0 and _is_float(a) and _is_float(b):
        if error is not None and error <= rtol:
            return pair(WITHIN, relative_error=error)
        if error is None and _not_finite_counts(a) == _not_finite_counts(b):
            return pair(NOT_COMPARABLE, "range")
    blame = _blame(expected, actual, rtol)
    born = born if blame == PROPAGATED else None
    return pair(DIVERGED, relative_error=error, blame=blame, not_finite=_not_finite(expected, actual), born=born)


def _incomparable(expected: KernelTrace, actual: KernelTrace) -> str | None:
    """Return why the traces are not comparable, in the words of `brickd diff`; None: they are comparable."""
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
    return "float" in of.dtype  # this includes bfloat16


def _not_finite_counts(of: Fingerprint) -> tuple[int, int, int]:
    return of.nan, of.pos_inf, of.neg_inf


def relative_error(a: Fingerprint, b: Fingerprint) -> float | None:
    """Return the distance of two tensors, relative to the norm of the first; None: unknown."""
    if _same(a, b):
        return 0.0
    if a.elements != b.elements or _not_finite_counts(a) != _not_finite_counts(b):
        return None
    distance = math.dist(a.sketch, b.sketch)
    norm = a.l2 if a.l2 > 0 else b.l2
    if distance == 0:
        return 0.0
    return distance / norm if 0 < norm < math.inf and math.isfinite(distance) else None


def _blame(expected: KernelTrace, actual: KernelTrace, rtol: float) -> str:
    if not expected.inputs or len(expected.inputs) != len(actual.inputs):
        return UNKNOWN
    if all(map(_same, expected.inputs, actual.inputs)):
        return CULPRIT
    errors = map(relative_error, expected.inputs, actual.inputs)
    explain = rtol <= 0 or any(error is None or error > rtol for error in errors)
    return PROPAGATED if explain else UNKNOWN


def _not_finite(expected: KernelTrace, actual: KernelTrace) -> str | None:
    a, b = expected.output, actual.output
    if a is None or b is None or _not_finite_counts(a) == _not_finite_counts(b):
        return None
    if not expected.inputs or len(expected.inputs) != len(actual.inputs):
        return UNKNOWN
    inputs, others = (list(map(_not_finite_counts, each.inputs)) for each in (expected, actual))
    return "born" if inputs == others else "passed_on"
