"""The screen of a comparison of workers.

Owns: which lines the screen shows, and in which order. Must not know: how workers are compared, the exit code.
Invariants: The first line has the evidence and the verdict. The number of fingerprints that were not compared is shown.
By default the screen has 24 lines.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from brickd.base import escape, units
from brickd.query.queries import REASONS
from brickd.screens import table as tables
from brickd.screens import wording
from brickd.screens.screen import Screen
from brickd.screens.table import Column, Figure

_LINES = 24
_BEFORE, _SITES_MIN, _APART = 2, 3, 5
_BRICKS = 3
DIFFER = ("diverged", "routing")  # the verdicts of a difference


def render(document: dict[str, Any], screen: Screen, every: bool, context: int | None, *, times: bool) -> list[str]:
    """Return the lines. `times` tells whether to show times even if no numbers can be compared."""
    if document["verdict"] == "not_comparable":  # the error at the end says this
        return _times(document["timing"], screen, every)[1:] if times else []
    title, *more = document["headlines"]
    bad = document["verdict"] in DIFFER
    lines = [escape.text(title, screen.width)]
    if document["verdict"] != "identical":
        lines = [screen.paint(lines[0], "red" if bad else "yellow")]
    lines += [escape.text(f"  {headline}", screen.width) for headline in more]
    lines += _both(document["first"], screen) if document["first"] else []
    rest = [escape.text(line, screen.width) for line in (*_counted(document), *_unseen(document["coverage"]))]
    rest += _times(document["timing"], screen, every)
    sites = [site for site in document["sites"] if site["compared"] or not site["not_comparable"]]
    room = _LINES - len(lines) - len(rest) - 3  # an empty line, titles, and the line that counts omissions
    apart = _apart(document["sites"], screen, None if every else room - _SITES_MIN)
    room = max(_SITES_MIN, room - len(apart))
    at = _place(document["first"], sites)
    shown = sites if every else _near(sites, at, room) if context is None else _around(sites, at, context)
    return lines + _sites(shown, len(sites), screen) + apart + rest


def _both(first: dict[str, Any], screen: Screen) -> list[str]:
    # the worker may lack this weight
    held = [side for side in (first["a"], first["b"]) if side["checksum"] is not None]
    return tables.figures(_STATISTICS, held, screen.width)


def _sites(shown: Sequence[dict[str, Any]], among: int, screen: Screen) -> list[str]:
    if not shown:
        return []
    more = wording.more(among - len(shown), "more site", ": --all")
    return ["", *tables.figures(_SITES_OF, shown, screen.width), *more]


def _apart(sites: Sequence[dict[str, Any]], screen: Screen, room: int | None) -> list[str]:
    """Say where fingerprints could not be compared, and why; [] if `room` is too small."""
    rows = [{**site, "times": sum(site["not_comparable"].values())} for site in sites if site["not_comparable"]]
    # an empty line, titles, and the line that counts omissions
    most = len(rows) if room is None else min(_APART, room - 4)
    if not rows or most < 1:
        return []
    title = f"not comparable: {units.count(sum(row['times'] for row in rows))} at {units.many(len(rows), 'site')}"
    more = wording.more(len(rows) - most, "more site", ": --all")
    return ["", title, *tables.figures(_SITES_APART, rows[:most], screen.width), *more]


def _place(first: dict[str, Any] | None, sites: Sequence[dict[str, Any]]) -> int | None:
    if first is None:
        return None
    where = first["kernel"], first["layer"]
    return next((n for n, site in enumerate(sites) if (site["kernel"], site["layer"]) == where), None)


def _near(sites: Sequence[dict[str, Any]], at: int | None, room: int) -> Sequence[dict[str, Any]]:
    """Return the sites around the first difference.

    If there is no difference, return the first sites that have a verdict or missing records.
    """
    if at is None:
        return [site for site in sites if site["verdict"] is not None or site["missing"]][:room]
    begin = max(0, min(at - _BEFORE, len(sites) - room))
    return sites[begin : begin + room]


def _around(sites: Sequence[dict[str, Any]], at: int | None, context: int) -> Sequence[dict[str, Any]]:
    return sites[max(0, (at or 0) - context) : (at or 0) + context + 1]


def _counted(document: dict[str, Any]) -> Iterator[str]:
    figures = [f"{units.many(document['compared'], 'comparison')}: {units.count(document['identical'])} identical"]
    figures += [f"{units.count(document[key])} {key}" for key in ("within", "diverged", "incomplete") if document[key]]
    reasons = document["not_comparable"]
    if reasons:
        why = ", ".join(f"{key} {units.count(n)}" for key, n in reasons.items())
        figures.append(f"{units.count(sum(reasons.values()))} not comparable ({why})")
    yield ", ".join(figures)
    lacking = [f"{units.count(each['missing'])} in {each['worker']}" for each in document["workers"] if each["missing"]]
    if lacking:
        where = "" if document["evidence"] == "weights" else ", in common steps"
        yield f"missing{where}: {', '.join(lacking[:4])}"
    yield from _other_classes(document)


def _other_classes(document: dict[str, Any]) -> Iterator[str]:
    """Return the verdicts that follow from other classes of evidence.

    Outputs that were not compared are reported elsewhere.
    """
    for each in document["evidence_classes"]:
        if each["verdict"] == "unproven" and each["evidence"] == "weights" != document["evidence"]:
            yield f"by weights: unproven: {each['why']}"
    for other in document["others"]:
        if other["verdict"] == "not_comparable":
            continue
        count = f", {units.count(other['diverged'])} diverged" if other["diverged"] else ""
        compared = units.many(other["compared"], "comparison")
        yield f"by {other['evidence']}: {_spell(other['verdict'])}, {compared}{count}"


def _unseen(seen: dict[str, Any]) -> Iterator[str]:
    steps = seen["steps"] or {}
    counts = [
        (seen["lone"], "fingerprint without a counterpart", "fingerprints without a counterpart"),
        (seen["bare"], "fingerprint without inputs", None),
        (
            seen["uncertain"],
            "fingerprint whose counterpart may be lost or still to come",
            "fingerprints whose counterparts may be lost or still to come",
        ),
        (seen["unreadable"], "tensor that cannot be read", "tensors that cannot be read"),
        (steps.get("lone", 0), "step that only one worker has", "steps that only one worker has"),
        (
            steps.get("other", 0),
            "step in which the workers did different work",
            "steps in which the workers did different work",
        ),
        (seen["off_sites"], "sensitive site", "sensitive sites"),
        (seen["evicted"], "evicted fingerprint", None),
        (seen["lost"], "lost fingerprint", None),
    ]
    if any(n for n, _, _ in counts):
        yield f"unseen: {', '.join(units.many(n, one, more) for n, one, more in counts if n)}"


def _times(timing: dict[str, Any] | None, screen: Screen, every: bool) -> list[str]:
    """Return the bricks whose times differ; `~` marks a difference that may be due to chance."""
    if timing is None or not timing["bricks"]:
        return []
    a, b = (units.listed(timing[side], most=1) for side in ("a", "b"))
    rows = timing["bricks"] if every else timing["bricks"][:_BRICKS]
    significant = sum(row["significant"] for row in timing["bricks"])
    title = f"time: {units.many(significant, 'brick differs', 'bricks differ')}, of {len(timing['bricks']):,}"
    shown = [{**row, "shown": _difference(row)} for row in rows]
    more = wording.more(len(timing["bricks"]) - len(rows), "more brick", ": --all")
    return ["", title, *tables.figures(_paces(a, b), shown, screen.width), *more]


def _difference(row: dict[str, Any]) -> str:
    percent = row["difference_percent"]
    return "~" if not row["significant"] or percent is None else wording.signed(percent)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.6g}"


def _error(value: float | None) -> str:
    return units.relative(value) if value else "-"


def _layer(layer: int | None) -> str:
    return "" if layer is None else str(layer)


def _spell(value: str | None) -> str:
    return "" if value is None else value.replace("_", " ")


def _why(reasons: dict[str, int]) -> str:
    words = [(n, REASONS.get(key, key)) for key, n in reasons.items()]
    return ", ".join(why if len(words) == 1 else f"{n:,} {why}" for n, why in words)


def _shape(shape: Sequence[int]) -> str:
    return "×".join(map(str, shape)) or "scalar"


def _median(side: dict[str, Any]) -> str:
    return units.duration(side["median_ns"])


_STATISTICS = (
    Figure(Column("  WORKER"), "worker", lambda name: f"  {name}"),
    Figure(Column("CHECKSUM"), "checksum", str),
    Figure(Column("DTYPE", spare=2), "dtype", str),
    Figure(Column("SHAPE", spare=3), "shape", _shape),
    Figure(Column("MEAN", "right", spare=1), "mean", _number),
    Figure(Column("L2", "right", spare=1), "l2", _number),
    Figure(Column("NAN", "right"), "nan", units.count),
    Figure(Column("+INF", "right", spare=4), "pos_inf", units.count),
    Figure(Column("-INF", "right", spare=4), "neg_inf", units.count),
)
_SITES_OF = (
    Figure(Column("SITE"), "kernel", str),
    Figure(Column("LAYER", "right"), "layer", _layer),
    Figure(Column("COMPARED", "right"), "compared", units.count),
    Figure(Column("IDENTICAL", "right", spare=1), "identical", units.count),
    Figure(Column("DIVERGED", "right"), "diverged", units.count),
    Figure(Column("MISSING", "right", spare=3), "missing", units.count),
    Figure(Column("ERROR", "right", spare=2), "relative_error", _error),
    Figure(Column("VERDICT"), "verdict", _spell),
    Figure(Column("BLAME"), "blame", _spell),
)
_SITES_APART = (
    Figure(Column("SITE"), "kernel", str),
    Figure(Column("LAYER", "right"), "layer", _layer),
    Figure(Column("TIMES", "right"), "times", units.count),
    Figure(Column("MISSING", "right", spare=1), "missing", units.count),
    Figure(Column("WHY"), "not_comparable", _why),
)


def _paces(a: str, b: str) -> tuple[Figure, ...]:
    """The columns of times; their titles are the names of the workers."""
    return (
        Figure(Column("BRICK", differs="end"), "brick", str),
        Figure(Column(a, "right"), "a", _median),
        Figure(Column(b, "right"), "b", _median),
        Figure(Column("DIFFERENCE", "right"), "shown", str),
    )
