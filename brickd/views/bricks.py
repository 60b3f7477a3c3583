"""The view `bricks`: totals of every brick, separated by worker, service or layer.

Owns: the schema of the document, the limit of rows. Must not know: segments, how totals are added up, screens.
Invariants: A share is relative to all recorded time of the selected workers, whatever category and limit the query has.
Omitted rows are counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from brickd.datasources.world import World
from brickd.errors import BrickdError
from brickd.model.brick_totals import BrickTotals, percent_of
from brickd.model.brick_totals import bricks as totals_of
from brickd.model.worker_names import suggestion
from brickd.query.queries import SORTS, BricksQuery
from brickd.views.common import Answer, begun, chosen, counted, day_of


def answer(world: World, query: BricksQuery) -> Answer:
    """Add up the workers' bricks."""
    of_day = day_of(world, query)
    them = chosen(world, query.names, of_day)
    over = counted(world, them, query, of_day)
    if over.summed and query.by == "worker":
        raise BrickdError(
            "by=worker contradicts the period: the last day is kept by service (use by=service, by=layer or over=60s)"
        )
    totals = totals_of(over.workers, query.by)
    whole = sum(brick.row["self_ns"] for brick in totals)
    found = totals if query.category is None else _of_category(totals, query.category)
    found.sort(key=lambda brick: brick.figure(SORTS[query.sort]), reverse=query.sort != "name")
    kept = len(found) if query.top is None else query.top
    # of thousands of bricks, a live screen shows a few: the others need no document
    entries = [
        {
            **brick.document(query.by, over.length_ns, summed=over.summed),
            "share_percent": percent_of(brick.row["self_ns"], whole),
        }
        for brick in found[:kept]
    ]
    document = {
        **begun(world),
        **over.document(),
        "sort": query.sort,
        "by": query.by,
        "category": query.category,
        "workers": len(them.workers) if over.many is None else over.many,
        "recorded_ns": round(whole),
        "bricks": entries,
        "rest": _rest(found[kept:], whole),
    }
    return Answer(document, them.words + over.words)


def _of_category(totals: Sequence[BrickTotals], category: str) -> list[BrickTotals]:
    found = [brick for brick in totals if brick.category.casefold() == category.casefold()]
    if not found:
        known = {brick.category for brick in totals}
        raise BrickdError(f"no category {category}: {suggestion(category, known)} (brickd bricks lists the categories)")
    return found


def _rest(cut: Sequence[BrickTotals], whole: float) -> dict[str, Any]:
    self_ns = sum(brick.figure("self_ns") for brick in cut)
    return {
        "bricks": len(cut),
        "count": sum(brick.row["count"] for brick in cut),
        "self_ns": self_ns,
        "share_percent": percent_of(self_ns, whole),
    }
