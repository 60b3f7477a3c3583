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
from brickd.model.brick_totals import bricks as totals_of
from brickd.model.brick_totals import percent_of
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
    entries = [
        {
            **brick.document(query.by, over.length_ns, summed=over.summed),
            "share_percent": percent_of(brick.row["self_ns"], whole),
        }
        for brick in totals
    ]
    if query.category is not None:
        entries = _of_category(entries, query.category)
    entries.sort(key=lambda entry: entry[SORTS[query.sort]], reverse=query.sort != "name")
    kept = len(entries) if query.top is None else query.top
    document = {
        **begun(world),
        **over.document(),
        "sort": query.sort,
        "by": query.by,
        "category": query.category,
        "workers": len(them.workers) if over.many is None else over.many,
        "recorded_ns": round(whole),
        "bricks": entries[:kept],
        "rest": _rest(entries[kept:], whole),
    }
    return Answer(document, them.words + over.words)


def _of_category(entries: Sequence[dict[str, Any]], category: str) -> list[dict[str, Any]]:
    found = [entry for entry in entries if entry["category"].casefold() == category.casefold()]
    if not found:
        known = {entry["category"] for entry in entries}
        raise BrickdError(f"no category {category}: {suggestion(category, known)} (brickd bricks lists the categories)")
    return found


def _rest(cut: Sequence[dict[str, Any]], whole: float) -> dict[str, Any]:
    self_ns = sum(entry["self_ns"] for entry in cut)
    return {
        "bricks": len(cut),
        "count": sum(entry["count"] for entry in cut),
        "self_ns": self_ns,
        "share_percent": percent_of(self_ns, whole),
    }
