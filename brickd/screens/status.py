"""The screen of a status.

Owns: the order of its lines, its columns. Must not know: segments. Invariants: However many workers and bricks there
are, the screen has 24 lines. Problems come first. The screen says how many entries it leaves out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Sequence
from typing import Any

from brickd.base import escape, units
from brickd.screens import brick_columns, brick_comparison, wording
from brickd.screens.health import Condition, inactive, living
from brickd.screens.screen import Screen
from brickd.screens.table import WORKER, Column, EntryTable, Figure
from brickd.views.next_command import command

LINES = 24
_SERVICES = 3
_NARROWEST_NAME = 8  # a service's name keeps this width; the end of its line is cut instead
_PROBLEMS = 4
_PROBLEM_LINES = 8
_WORKERS = 5
_BRICKS = 10

_WORKER_FIGURES = (
    Figure(WORKER, "name", str),
    Figure(Column("PID", "right"), "pid", lambda pid: str(pid or "-")),
    Figure(Column("STATE"), "state", str),
    Figure(Column("SPANS", "right"), "spans", units.count),
    Figure(Column("LOST", "right"), "lost", str),
    Figure(Column("OPEN NOW"), "open", str),
)
_BRICK_FIGURES = (
    Figure(Column("SELF", "right"), "self_ns", units.duration),
    Figure(Column("SHARE", "right"), "share_percent", units.percent),
    Figure(Column("MEDIAN", "right"), "p50_ns", units.duration),
    Figure(Column("P99", "right"), "p99_ns", units.duration),
    Figure(Column("WORST WORKER", differs="end"), "worst_worker", str),
    Figure(Column("SPREAD", "right"), "spread", lambda spread: f"{spread:.2f}x"),
)


def render(document: dict[str, Any], screen: Screen, more: Sequence[str] = ()) -> list[str]:
    """Return the lines of the screen. `more` names the optional columns of the bricks."""
    if not document["workers"] and not wording.is_past(document):
        return [
            wording.no_workers(document),
            *_problems(document, screen),
            *_flight_recorder(document, screen),
            *wording.removed(document["removed"], screen),
        ]
    past = inactive(document)
    lines = _services(document, screen, past=bool(past)) + _problems(document, screen)
    lines += _flight_recorder(document, screen)
    lines += inactive_lines(document, past, screen)
    lines += wording.removed(document["removed"], screen) + _numerics(document, screen) + _unproven(document, screen)
    lines += _workers(document, screen)
    return lines + _bricks(document, screen, LINES - len(lines), more)


def verdict(document: dict[str, Any], *, past: bool) -> tuple[str, str]:
    """Return the verdict on the whole document, not escaped, and its colour.

    `past` tells whether an inactive problem keeps a condition unhealthy. Without workers, nothing was compared, and the
    verdict says so.
    """
    if document["problems"] is None:
        return "problems not known", "yellow"
    count, silenced = len(document["problems"]), len(document["silenced"])
    unproven = sum(each["verdict"] == "unproven" and each["recorded"] for each in living(document))
    healthy = "no active problem" if past else "no problem" if document["workers"] else "no workers"
    text = units.many(count, "PROBLEM", "PROBLEMS") if count else healthy
    if unproven and not count:
        text += f", {unproven:,} unproven"
    text += f", {units.count(silenced)} silenced" if silenced else ""
    whole = wording.lost(document)
    text += f", lost: {whole}" if whole else ""
    return text, "red" if count else "yellow" if unproven or past or not document["workers"] else "green"


def verdict_line(document: dict[str, Any], screen: Screen) -> str:
    """Return the verdict on the whole document, ready to print."""
    text, colour = verdict(document, past=bool(document["workers"] and inactive(document)))
    return screen.paint(escape.text(text, screen.width), colour)


def services_of(document: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Return the workers of each service, in the order of the document."""
    services: dict[str, list[dict[str, Any]]] = {}
    for worker in document["workers"] or ():
        if worker["service"] is not None:
            services.setdefault(worker["service"], []).append(worker)
    return services


def service_line(name: str, workers: Iterable[dict[str, Any]], source: str, width: int | None) -> str:
    """Return the line about a service, escaped: the states of its workers, and its spans.

    Only the name is cut to fit the width, and it keeps 8 columns.
    """
    states, spans, known = Counter({"live": 0}), 0, True
    for worker in workers:
        states[worker["state"]] += worker["together"]
        known = known and worker["ledger"] is not None
        spans += worker["ledger"]["spans"]["summarized"] if known else 0
    counts = ", ".join(f"{n:,} {state}" for state, n in states.items())
    facts = f"  {counts}  {units.many(spans, 'span')}  {source}" if known else f"  {counts}  {source}"
    room = None if width is None else max(_NARROWEST_NAME, width - len(facts))
    return escape.text(name, room) + escape.text(facts)


def _services(document: dict[str, Any], screen: Screen, *, past: bool) -> list[str]:
    services, (text, colour) = services_of(document), verdict(document, past=past)
    lines: list[str] = []
    for name, workers in list(services.items())[:_SERVICES]:
        # The verdict is on the first line, if there is room.
        room = None if screen.width is None else screen.width - (0 if lines else len(text) + 2)
        lines.append(escape.text(service_line(name, workers, document["source"], room), screen.width))
    then = f"; to show one of them: {_next(document, 'status')} SERVICE"
    lines += wording.more(len(services) - _SERVICES, "more service", then)
    fits = lines and (screen.width is None or escape.width(lines[0]) + 2 + len(text) <= screen.width)
    painted = screen.paint(escape.text(text, screen.width), colour)
    return [f"{lines[0]}  {painted}", *lines[1:]] if fits else [painted, *lines]


def _next(document: dict[str, Any], verb: str) -> str:
    return escape.text(command(document, f"brickd {verb}"))


def _problems(document: dict[str, Any], screen: Screen) -> list[str]:
    problems, lines, shown = document["problems"] or (), list[str](), 0
    for problem in problems[:_PROBLEMS]:
        each = wording.problem(problem, screen)
        if lines and len(lines) + len(each) > _PROBLEM_LINES:
            break
        lines += each
        shown += 1
    return lines + wording.more(len(problems) - shown, "more problem", f": {_next(document, 'workers')}")


def _flight_recorder(document: dict[str, Any], screen: Screen) -> list[str]:
    """Return a line about the flight recorder of the daemon, if it is known to have one."""
    recorder = (document["daemon"] or {}).get("flight_recorder")  # an earlier daemon does not report it
    if recorder is None:
        return []
    rests = f"rests for {units.duration(recorder['rests_ns'])}" if recorder["rests_ns"] else "on"
    last = f"; last: {recorder['last']['text']}" if recorder["last"] else ""
    return [escape.text(f"flight recorder  {rests}{last}", screen.width)]


def inactive_lines(document: dict[str, Any], past: Sequence[Condition], screen: Screen) -> list[str]:
    """Return the lines about conditions that an inactive problem keeps unhealthy, ready to print."""
    if not past:
        return []
    text = f"no longer active, but status --check still fails: {'; '.join(each.seen for each in past)}"
    return wording.finding(text, command(document, past[0].command or "brickd events"), screen)


def _numerics(document: dict[str, Any], screen: Screen) -> list[str]:
    """Return a single line that covers all services with fingerprints or weights."""
    if not document["numerics"]:
        return []
    text = wording.numerics(document["numerics"], command(document, "brickd coverage"))
    return [escape.text(f"numerics  {text}", screen.width)]


def _unproven(document: dict[str, Any], screen: Screen) -> list[str]:
    lines = wording.unproven(living(document), document, screen)
    return lines[:_SERVICES] + wording.more(len(lines) - _SERVICES, "more service", " with unproven evidence: --json")


def _workers(document: dict[str, Any], screen: Screen) -> list[str]:
    """Return lines for the unhealthy workers. If there are many workers, one line sums up the healthy ones."""
    workers, outliers = document["workers"] or (), {each["worker"] for each in document["stragglers"] or ()}
    outliers |= {name for each in document["problems"] or () if wording.is_past(document) for name in each["workers"]}
    outliers |= {name for key in ("diverged", "weights") for each in document[key] or () for name in each["workers"]}
    shown = list(workers)
    if len(workers) > _WORKERS:
        shown = [worker for worker in workers if not _healthy(worker, outliers)][:_WORKERS]
    lines = worker_table(shown).lines(screen.width) if shown else []
    rest = [worker for worker in workers if worker not in shown]
    if rest:
        states: Counter[str] = Counter()
        for worker in rest:
            states["healthy" if _healthy(worker, outliers) else "with a problem"] += worker["together"]
        text = ", ".join(f"{n} {state}" for state, n in states.items())
        lines.append(
            f"…{text}" if wording.is_past(document) else f"…{text}, {_spans_of(rest)}: {_next(document, 'workers')}"
        )
    return lines


def _spans_of(workers: Sequence[dict[str, Any]]) -> str:
    each = [worker["ledger"]["spans"]["summarized"] for worker in workers]
    return f"{units.count(min(each))} to {units.many(max(each), 'span')} each"


def worker_table(workers: Iterable[dict[str, Any]]) -> EntryTable:
    """Return the table of some workers of a status, in the same order."""
    return EntryTable(_WORKER_FIGURES, [wording.worker_row(worker) for worker in workers])


def _healthy(worker: dict[str, Any], outliers: Container[str]) -> bool:
    return worker["state"] in ("live", "ended") and not worker["problem"] and worker["name"] not in outliers


def _bricks(document: dict[str, Any], screen: Screen, room: int, more: Sequence[str]) -> list[str]:
    if document.get("against") is not None:
        return brick_comparison.lines(document, screen, min(_BRICKS, room - 2))
    most = min(_BRICKS, room - 2)
    table = brick_table(document, most, more)
    lines = table.lines(screen.width) if table.entries else [brick_columns.nothing(document)]
    return lines + wording.more(len(document["bricks"]) - most, "more brick", f": {_next(document, 'bricks')}")


def brick_table(document: dict[str, Any], most: int, more: Sequence[str] = ()) -> EntryTable:
    """Return the table of the first `most` bricks, in the order of the document."""
    bricks, windowed = document["bricks"], document["over_ns"] is not None
    title, key = ("COUNT/S", "count_per_second") if windowed else ("COUNT", "count")
    figures = (
        Figure(Column(f"BRICK (self time{brick_columns.over(document)})"), "name", str),
        Figure(Column(title, "right"), key, units.count),
        *brick_columns.with_optional(_BRICK_FIGURES, more),
    )
    if document.get("from") is not None:  # the last day is kept by service
        figures = tuple(each for each in figures if each.key not in ("worst_worker", "spread"))
    whole = sum(brick["self_ns"] for brick in bricks)
    rows = [
        brick | {"name": brick_columns.name(brick), "share_percent": 100 * brick["self_ns"] / whole if whole else 0}
        for brick in bricks[:most]
    ]
    return EntryTable(figures, rows)
