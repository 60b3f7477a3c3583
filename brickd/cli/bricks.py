"""The verb `bricks`.

Owns: the order of the bricks, what is chosen of them, their human screen. Must not know: segments, how totals are added
up. Invariants: shares are of all that the workers asked for recorded, whatever is chosen; what is cut off is counted;
the column by which the bricks are sorted is shown on any screen of 24 columns or more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

import click

from brickd import escape, units
from brickd.cli import phrases
from brickd.cli import table as tables
from brickd.cli.output import Screen, emit, output_options
from brickd.cli.selection import NOBODY, asked, names_argument
from brickd.cli.table import Column, Figure
from brickd.errors import BrickdError
from brickd.naming import suggestion
from brickd.totals import By, percent_of
from brickd.totals import bricks as brick_totals

# What --sort takes, and which key of an entry it means.
_SORTS = {
    **{each: f"{each}_ns" for each in ("self", "total", "mean", "p50", "p90", "p99", "max")},
    **{each: each for each in ("count", "elements", "bytes", "name", "spread")},
}

_FIGURES = (
    Figure(Column("CATEGORY", spare=10), "category", str),
    Figure(Column("COUNT", "right", spare=6), "count", units.count),
    Figure(Column("SELF", "right", spare=1), "self_ns", units.duration),
    Figure(Column("SHARE", "right", spare=2), "share_percent", units.percent),
    Figure(Column("TOTAL", "right", spare=8), "total_ns", units.duration),
    Figure(Column("MEAN", "right", spare=9), "mean_ns", units.duration),
    Figure(Column("MEDIAN", "right", spare=7), "p50_ns", units.duration),
    Figure(Column("P90", "right", spare=12), "p90_ns", units.duration),
    Figure(Column("P99", "right", spare=5), "p99_ns", units.duration),
    Figure(Column("MAX", "right", spare=11), "max_ns", units.duration),
    Figure(Column("ELEMENTS", "right", spare=13), "elements", units.count),
    Figure(Column("BYTES", "right", spare=14), "bytes", units.size),
    Figure(Column("ELEMENTS/S IN BRICK", "right", spare=15), "elements_per_second_in_brick", units.count),
)
_WORST = (
    Figure(Column("WORST WORKER", spare=4), "worst_worker", str),
    Figure(Column("SPREAD", "right", spare=3), "spread", lambda spread: f"{spread:.2f}x"),
)


@click.command()
@names_argument
@click.option("--sort", type=click.Choice(list(_SORTS)), default="self", show_default=True,
              help="By which figure, the largest first.")  # fmt: skip
@click.option("--by", type=click.Choice(get_args(By)), help="A row for each brick in each of these.")
@click.option("--category", metavar="NAME", help="Only the bricks of this category.")
@click.option("--top", type=click.IntRange(1), metavar="N", help="Only so many; the rest is counted.")
@output_options
def bricks(
    *, names: tuple[str, ...], sort: str, by: By | None, category: str | None, top: int | None, output: str
) -> None:
    """Totals of every brick, apart by worker, service or layer."""
    if (sort, by) == ("spread", "worker"):
        raise click.UsageError("--sort spread compares workers, which --by worker tells apart: give one of them")
    _, workers = asked(names)
    totals = brick_totals(workers, by)
    whole = sum(brick.row["self_ns"] for brick in totals)
    entries = [
        {
            **brick.document(by),
            "share_percent": percent_of(brick.row["self_ns"], whole),
            "elements_per_second_in_brick": _rate(brick.row["elements"], brick.row["total_ns"]),
        }
        for brick in totals
    ]
    if category is not None:
        entries = _of_category(entries, category)
    entries.sort(key=lambda entry: entry[_SORTS[sort]], reverse=sort != "name")
    document = {
        "schema_version": 1,
        "sort": sort,
        "by": by,
        "category": category,
        "recorded_ns": round(whole),
        "bricks": entries[:top],
        "rest": _rest(entries[len(entries) if top is None else top :], whole),
    }

    def table(screen: Screen) -> list[str]:
        return _render(document, screen) if workers else [NOBODY]

    emit(document, output, table=table, rows="bricks")


def _rate(elements: int, total_ns: float) -> float | None:
    """Elements a second of the time in the brick itself; of the machine's time it says nothing."""
    return round(elements / total_ns * 1e9, 1) if elements and total_ns else None


def _of_category(entries: Sequence[dict[str, Any]], category: str) -> list[dict[str, Any]]:
    chosen = [entry for entry in entries if entry["category"].casefold() == category.casefold()]
    if not chosen:
        known = {entry["category"] for entry in entries}
        raise BrickdError(f"no category {category}: {suggestion(category, known)} (see brickd bricks)")
    return chosen


def _rest(cut: Sequence[dict[str, Any]], whole: float) -> dict[str, Any]:
    self_ns = sum(entry["self_ns"] for entry in cut)
    return {
        "bricks": len(cut),
        "count": sum(entry["count"] for entry in cut),
        "self_ns": self_ns,
        "share_percent": percent_of(self_ns, whole),
    }


def _render(document: dict[str, Any], screen: Screen) -> list[str]:
    entries, by, rest = document["bricks"], document["by"], document["rest"]
    if not entries:
        return ["no spans yet"]
    figures = [Figure(Column("BRICK"), "name", str)]
    if by is not None:
        layer = by == "layer"
        column = Column(by.upper(), "right" if layer else "left")
        figures.append(Figure(column, by, phrases.identifier if layer else str))
    # Of one worker alone there is no worst.
    figures += _FIGURES if by == "worker" else _FIGURES + _WORST
    sorted_by = _SORTS[document["sort"]]
    kept = [each._replace(column=each.column._replace(spare=0)) if each.key == sorted_by else each for each in figures]
    lines = tables.figures(kept, entries, screen.width)
    if rest["bricks"]:
        share = units.percent(rest["share_percent"])
        more = f"…{units.count(rest['bricks'])} more: {units.duration(rest['self_ns'])} self, {share}"
        lines.append(escape.text(more, screen.width))
    return lines
