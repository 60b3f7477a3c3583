"""Removed workers in the documents: their spans, which are in no total, and whether that is a problem.

Owns: how spans of removed workers are added up, and when they are a problem. Must not know: terminals, files.
Invariant: a removal that a user requested is counted, but is not a problem.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from brickd.base.units import noun, plural
from brickd.model.workers import Survey
from brickd.shm.removed_workers import RemovedWorker


def chosen(found: Survey, names: Sequence[str]) -> list[RemovedWorker]:
    """Return the removed workers of the named services, or all if no name is given."""
    return [each for each in found.removed if not names or each.service in names]


def summary(removed: Sequence[RemovedWorker]) -> dict[str, int]:
    """Count the removed workers and their spans."""
    return {
        "workers": _workers(removed),
        "spans": sum(each.counts.spans for each in removed),
        "unasked_workers": _workers(_unasked(removed)),
        "unasked_spans": sum(each.counts.spans for each in _unasked(removed)),
    }


def sentence(removed: Sequence[RemovedWorker]) -> str | None:
    """Describe the losses that no user requested; None if there are none."""
    unasked = _unasked(removed)
    if not unasked:
        return None
    spans = sum(each.counts.spans for each in unasked)
    who = f"{plural(spans, 'span')} of {plural(_workers(unasked), 'removed worker')}"
    return f"{who} {noun(spans, 'is', 'are')} missing in all totals: no daemon kept {noun(spans, 'it', 'them')}"


def _workers(removed: Iterable[RemovedWorker]) -> int:
    return sum(each.workers for each in removed)


def _unasked(removed: Iterable[RemovedWorker]) -> list[RemovedWorker]:
    return [each for each in removed if not each.asked]
