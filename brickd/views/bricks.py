"""The view `bricks`: totals of every brick, apart by worker, service or layer.

Owns: the schema of its document, what is cut off. Must not know: segments, how totals are added up, screens.
Invariants: shares are of all that the workers asked for recorded, whatever is chosen; what is cut off is counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from brickd.errors import BrickdError
from brickd.naming import suggestion
from brickd.questions.bricks import SORTS, BricksQuestion
from brickd.totals import bricks as totals_of
from brickd.totals import percent_of
from brickd.views.answer import Answer, begun, chosen
from brickd.world import World


def answer(world: World, question: BricksQuestion) -> Answer:
    """Add the workers' bricks up."""
    _, workers, words = chosen(world, question.names)
    totals = totals_of(workers, question.by)
    whole = sum(brick.row["self_ns"] for brick in totals)
    entries = [
        {
            **brick.document(question.by),
            "share_percent": percent_of(brick.row["self_ns"], whole),
            "elements_per_second_in_brick": _rate(brick.row["elements"], brick.row["total_ns"]),
        }
        for brick in totals
    ]
    if question.category is not None:
        entries = _of_category(entries, question.category)
    entries.sort(key=lambda entry: entry[SORTS[question.sort]], reverse=question.sort != "name")
    kept = len(entries) if question.top is None else question.top
    document = {
        **begun(world),
        "sort": question.sort,
        "by": question.by,
        "category": question.category,
        "workers": len(workers),
        "recorded_ns": round(whole),
        "bricks": entries[:kept],
        "rest": _rest(entries[kept:], whole),
    }
    return Answer(document, words)


def _rate(elements: int, total_ns: float) -> float | None:
    """Elements a second of the time in the brick itself; of the machine's time it says nothing."""
    return round(elements / total_ns * 1e9, 1) if elements and total_ns else None


def _of_category(entries: Sequence[dict[str, Any]], category: str) -> list[dict[str, Any]]:
    found = [entry for entry in entries if entry["category"].casefold() == category.casefold()]
    if not found:
        known = {entry["category"] for entry in entries}
        raise BrickdError(f"no category {category}: {suggestion(category, known)} (see brickd bricks)")
    return found


def _rest(cut: Sequence[dict[str, Any]], whole: float) -> dict[str, Any]:
    self_ns = sum(entry["self_ns"] for entry in cut)
    return {
        "bricks": len(cut),
        "count": sum(entry["count"] for entry in cut),
        "self_ns": self_ns,
        "share_percent": percent_of(self_ns, whole),
    }
