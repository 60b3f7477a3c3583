"""The screen of slow workers.

Owns: the order of its lines, its columns. Must not know: how stragglers are judged. Invariants: The findings come
first. If there are no findings, the screen shows what was compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from brickd.base import escape, units
from brickd.screens import wording
from brickd.screens.screen import Screen
from brickd.screens.table import WORKER, Column, EntryTable, Figure
from brickd.views.next_command import command

_BRICKS = 5  # the number of findings on the screen
_ROWS = 8
_OLD_NS = 20_000_000_000  # in this time, the daemon should have compared the workers twice
_WHY_NOT = (
    ("bricks_few_workers", "with fewer than 3 active workers"),
    ("bricks_few_samples", "with too few calls"),
    ("bricks_small", "with too little time"),
    ("bricks_unjudged", "of category wait or idle"),
    ("bricks_bounded", "whose times are only bounds"),
)


def render(document: dict[str, Any], screen: Screen) -> list[str]:
    """Return the lines of the screen."""
    findings, compared = document["stragglers"], document["compared"]
    age = units.duration(compared["age_ns"])
    if not compared["current"]:
        text = f"no worker is judged now: the last look at the workers was {age} ago"
        return escape.wrapped(f"{text} ({command(document, 'brickd events')})", screen.width)
    old = f"the last look at the workers was {age} ago"
    lines = escape.wrapped(old, screen.width) if compared["age_ns"] > _OLD_NS else []
    for headline in document["headlines"]:
        lines += [screen.paint(line, "yellow") for line in escape.wrapped(f"! {headline}", screen.width)]
    for finding in findings[:_BRICKS]:
        lines += ["", *_side_by_side(finding, screen)]
    for line in wording.more(len(findings) - _BRICKS, "more brick", " with a slow worker: --json"):
        lines += ["", *escape.wrapped(line, screen.width)]
    if findings or document["waiting"]:
        return lines
    return lines + [line for text in _none_slow(document) for line in escape.wrapped(text, screen.width)]


def _side_by_side(finding: dict[str, Any], screen: Screen) -> list[str]:
    """Return a line for each worker of one brick, the outliers first. If some are left out, a line says how many."""
    cost = f"costs {units.duration(finding['cost_ns_per_s'])}/s, {units.percent(finding['cost_percent'])} of the time"
    title = f"{finding['brick']} of {finding['service']}: {cost}, {finding['confidence']} confidence"
    if finding["corroborated_by"]:
        title += f"; the others wait in {', '.join(finding['corroborated_by'])}"
    table = table_of(finding)
    lines = escape.wrapped(title, screen.width) + table.lines(screen.width)
    return lines + wording.more(len(finding["workers"]) - len(table.entries), "more worker")


def table_of(finding: dict[str, Any]) -> EntryTable:
    """Return the table of the first workers of a finding, in the order of the document."""
    rows = finding["workers"]
    waits = finding["category"].casefold() == "collective"
    return EntryTable(_WAITS if waits else _TIMES, rows if len(rows) <= _ROWS else rows[: _ROWS - 1])


def _none_slow(document: dict[str, Any]) -> Iterator[str]:
    compared = document["compared"]
    seconds = units.duration(compared["length_ns"])
    if compared["slots"] < compared["slots_wanted"]:
        yield f"no worker is judged yet: {seconds} were recorded, {compared['slots_wanted']} slots of 10 s are needed"
        return
    judged = sum(service["bricks_judged"] for service in compared["services"])
    verdict = "no worker is slow" if judged else "no worker is judged"
    yield f"{verdict}: {units.many(judged, 'brick was', 'bricks were')} compared over {seconds}"
    for service in compared["services"]:
        line = f"{service['service']}: {units.many(service['workers'], 'worker')}"
        line += f", {units.many(service['bricks_judged'], 'brick')} compared"
        why = [f"{units.count(service[key])} {what}" for key, what in _WHY_NOT if service[key]]
        line += f"; not compared: {', '.join(why)}" if why else ""
        if unknown := service["waits_unknown"]:
            line += f"; unknown waiting time for a processor: {units.many(unknown, 'worker')}"
        yield line
    for each in document["passed_over"]:
        yield f"{each['worker']} stands out in {each['brick']} but is not named as slow: {each['reason']}"


def _score(score: float | None) -> str:
    return "-" if score is None else f"{score:z.1f}"


_TIMES = (
    Figure(WORKER, "worker", str),
    Figure(Column("MEAN (self)", "right"), "mean_ns", units.duration),
    Figure(Column("VERSUS MEDIAN", "right"), "excess_percent", wording.signed),
    Figure(Column("CALLS", "right", spare=2), "calls", units.count),
    Figure(Column("ELEMENTS EACH", "right", spare=3), "elements_per_call", units.count),
    Figure(Column("SCORE", "right", spare=1), "score", _score),
)
_WAITS = (
    Figure(WORKER, "worker", str),
    Figure(Column("MEAN WAIT", "right"), "mean_ns", units.duration),
    Figure(Column("LATE, OF THE TIME", "right"), "excess_percent", wording.signed),
    Figure(Column("CALLS", "right", spare=2), "calls", units.count),
    Figure(Column("SCORE", "right", spare=1), "score", _score),
)
