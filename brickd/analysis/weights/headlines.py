"""Sentences about workers whose weights differ.

Owns: the words. Must not know: how a verdict was formed, screens. Invariants: Every worker that disagrees is in a
headline. No two headlines have the same worker in `found`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from brickd.analysis.weights.contents import TensorContent
from brickd.analysis.weights.verdicts import ComparedWorker, Differing, WeightOutlier, WeightsVerdict
from brickd.base import units
from brickd.base.units import called, plural


class Headline(NamedTuple):
    """A sentence about what is wrong with a worker.

    Attributes:
        found: the worker. If several workers disagree, it is the first one that no earlier headline names.
        rows: the tensors in which the worker differs, by layer and name.
    """

    found: ComparedWorker
    text: str
    rows: Sequence[Differing]


def headlines(verdict: WeightsVerdict) -> list[Headline]:
    """Return a sentence for each worker that differs, and for each group of workers that disagree."""
    lines = [_headline(verdict, each) for each in verdict.workers if each.state == "differs"]
    covered: set[str] = set()
    for row in verdict.differing:
        names = row.names
        if row.why == "disagree" and not covered.issuperset(names):
            found = next(each for each in verdict.workers if each.name in names and each.name not in covered)
            covered.update(names)
            rows = [each for each in verdict.differing if each.why == "disagree" and found.name in each.names]
            text = f"{' and '.join(names)} disagree in {_which(row, len(rows), verdict.tensors)}{_how_unlike(row)}"
            lines.append(Headline(found, text, rows))
    return lines


def _headline(verdict: WeightsVerdict, found: ComparedWorker) -> Headline:
    rows = [row for row in verdict.differing if row.why != "disagree" and found.name in row.names[len(row.agree) :]]
    if found.holds is not None:
        whose = found.holds or "workers without a shard"
        text = f"{found.name} has the weights of {whose} in all of its {found.known} tensors"
        return Headline(found, f"{text}: it loaded the wrong shard, or reports the wrong one", rows)
    outlier = next(each for each in rows[0].outliers if each.worker == found.name)
    verb = "changed in place in" if not rows[0].agree else "differs in"
    which = _which(rows[0], len(rows), found.known + found.missing)
    text = f"{found.name} {verb} {which}: {how_far(rows[0], outlier)}"
    if rows[0].agree and outlier.changed:
        text += ", changed in place"
    return Headline(found, text, rows)


def _which(row: Differing, rows: int, tensors: int) -> str:
    """Name the first tensor that differs, and say how many of all tensors differ."""
    named, of = called(*row.tensor), plural(tensors, "tensor")
    return f"{named}, 1 of {of}" if rows == 1 else f"{rows} of {of}, first in {named}"


def _how_unlike(row: Differing) -> str:
    """Describe the first worker that disagrees and has a tensor of another dtype or shape than the reference."""
    unlike_rows = ((outlier.worker, unlike(row, outlier)) for outlier in row.outliers)
    return next((f" ({worker}: {form})" for worker, form in unlike_rows if form), "")


def how_far(row: Differing, outlier: WeightOutlier) -> str:
    """Describe how far an outlier differs: its dtype and shape if they differ, and its error if that is known."""
    form, of = unlike(row, outlier), outlier.held
    if of is not None and (of.nan or of.pos_inf or of.neg_inf):
        counts = ((of.nan, "NaN"), (of.pos_inf, "+Inf"), (of.neg_inf, "-Inf"))
        far = f"contains {', '.join(f'{n:,} {what}' for n, what in counts if n)}"
    elif outlier.error is not None:
        far = f"relative error {units.relative(outlier.error)}"
    else:
        far = "" if form else "the error is unknown"
    return ", ".join(filter(None, (form, far)))


def unlike(row: Differing, outlier: WeightOutlier) -> str:
    """Say how the dtype and shape differ from the reference, or say that the tensor is missing."""
    of, wanted = outlier.held, row.wanted
    if of is None:
        return "lacks it"
    if wanted is None:
        return "missing in the others"
    if of.form == wanted.form:
        return ""
    is_, is_not = _form(of, wanted), _form(wanted, of)
    return f"{is_} and not {is_not}" if is_ else "has another shape"


def _form(of: TensorContent, other: TensorContent) -> str:
    """Return the dtype of `of` if `other` has a different dtype, and its shape if `other` has a different shape.

    At most 6 dimensions are shown.
    """
    dtype = of.dtype if of.dtype != other.dtype else ""
    shape = ("×".join(map(str, of.shape)) or "scalar") if of.shape != other.shape else ""
    return f"{dtype} {shape}".strip()
