"""The verb `status`.

Owns: the screen of the status document. Must not know: segments. Invariants: However many workers and bricks there are,
the screen has 24 lines. Problems come first. The screen says how many entries it leaves out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Sequence
from functools import partial
from typing import Any

import click

from brickd.base import escape, units
from brickd.cli import progress
from brickd.cli.ask import asked
from brickd.cli.health import Bounds, inactive
from brickd.cli.health import check as checked
from brickd.cli.health import living as with_living_workers
from brickd.cli.output import column_option, emit, output_options
from brickd.cli.query_options import ParameterType, asks
from brickd.cli.watch_loop import again
from brickd.errors import Exit
from brickd.query.parameters import Duration
from brickd.query.queries import StatusQuery
from brickd.query.query import to_query
from brickd.screens import brick_columns, brick_comparison, wording
from brickd.screens import table as tables
from brickd.screens.screen import Screen
from brickd.screens.table import Column, Figure
from brickd.views import fetch_answer
from brickd.views.next_command import command

LINES = 24
_SERVICES = 3
_NARROWEST_NAME = 8  # a service's name keeps this width; the end of its line is cut instead
_PROBLEMS = 4
_PROBLEM_LINES = 8
_WORKERS = 5
_BRICKS = 10

_WORKER_FIGURES = (
    Figure(Column("WORKER"), "name", str),
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
    Figure(Column("WORST WORKER"), "worst_worker", str),
    Figure(Column("SPREAD", "right"), "spread", lambda spread: f"{spread:.2f}x"),
)


@click.command()
@asks(StatusQuery)
@click.option("--watch", "seconds", type=ParameterType(Duration(0.1, 3600, "")), is_flag=False, flag_value="2s",
              metavar="[DURATION]", help="Repeat every DURATION (default: 2s).")  # fmt: skip
@click.option("--check", is_flag=True, help="Print one line that says whether all is well. Exit 1 if not.")
@asks(Bounds, keyword="bounds")
@column_option
@output_options
def status(
    *,
    query: StatusQuery,
    recordings: Sequence[str],
    seconds: float | None,
    check: bool,
    bounds: Bounds,
    more: Sequence[str],
    output: str,
) -> Exit | None:
    """Show totals over all workers, problems first.

    With a daemon, the table of bricks shows the last 60 seconds. Without a daemon, or with --over start, it shows the
    totals since each worker's start. For a recording, it shows the totals at the end of the recording. On a pipe,
    --watch --json prints one document per line.

    \b
    Examples:
      brickd status
      brickd status api --watch
      brickd status api --over 1h --against yesterday
      brickd status --check --ignore removed
      brickd status night.brick
    """  # noqa: D301
    if recordings and seconds is not None:
        raise click.UsageError(f"--watch contradicts recording {recordings[0]}: give one of them")
    if check and seconds is not None:
        raise click.UsageError("--check contradicts --watch: give one of them")
    if bounds != Bounds() and not check:
        raise click.UsageError(f"--{to_query(bounds)[0][0]} needs --check: add it")
    find = partial(fetch_answer.find, "status", query, recordings=recordings, reading=progress.reading)
    if seconds is not None:
        again(seconds, find, partial(render, more=more), output)
    if check:
        return checked(find(), bounds, output)
    document = asked("status", query, recordings=recordings)
    emit(document, output, table=lambda screen: render(document, screen, more), rows="bricks")
    return None


def render(document: dict[str, Any], screen: Screen, more: Sequence[str] = ()) -> list[str]:
    """Return the lines of the screen."""
    if not document["workers"]:
        return [
            wording.no_workers(document),
            *_problems(document, screen),
            *wording.removed(document["removed"], screen),
        ]
    past = inactive(document)
    lines = _services(document, screen, past=bool(past)) + _problems(document, screen)
    if past:
        text = f"no longer active, but status --check still fails: {'; '.join(each.seen for each in past)}"
        lines += wording.finding(text, command(document, past[0].command or "brickd events"), screen)
    lines += wording.removed(document["removed"], screen) + _numerics(document, screen) + _unproven(document, screen)
    lines += _workers(document, screen)
    return lines + _bricks(document, screen, LINES - len(lines), more)


def _services(document: dict[str, Any], screen: Screen, *, past: bool) -> list[str]:
    services: dict[str, list[dict[str, Any]]] = {}
    for worker in document["workers"]:
        if worker["service"] is not None:
            services.setdefault(worker["service"], []).append(worker)
    whole = wording.lost(document)
    count, silenced = len(document["problems"]), len(document["silenced"])
    unproven = sum(each["verdict"] == "unproven" and each["recorded"] for each in with_living_workers(document))
    verdict = units.many(count, "PROBLEM", "PROBLEMS") if count else "no active problem" if past else "no problem"
    if unproven and not count:
        verdict += f", {unproven:,} unproven"
    verdict += f", {units.count(silenced)} silenced" if silenced else ""
    verdict += f", lost: {whole}" if whole else ""
    lines: list[str] = []
    for name, workers in list(services.items())[:_SERVICES]:
        spans = sum(worker["ledger"]["spans"]["summarized"] for worker in workers)
        states = Counter({"live": 0})
        for worker in workers:
            states[worker["state"]] += worker["together"]
        counts = ", ".join(f"{n:,} {state}" for state, n in states.items())
        facts = f"  {counts}  {units.many(spans, 'span')}  {document['source']}"
        beside = 0 if lines else len(verdict) + 2
        room = None if screen.width is None else max(_NARROWEST_NAME, screen.width - len(facts) - beside)
        lines.append(escape.text(escape.text(name, room) + facts, screen.width))
    then = f"; to show one of them: {_next(document, 'status')} SERVICE"
    lines += wording.more(len(services) - _SERVICES, "more service", then)
    fits = lines and (screen.width is None or escape.width(lines[0]) + 2 + len(verdict) <= screen.width)
    colour = "red" if count else "yellow" if unproven or past else "green"
    painted = screen.paint(escape.text(verdict, screen.width), colour)
    return [f"{lines[0]}  {painted}", *lines[1:]] if fits else [painted, *lines]


def _next(document: dict[str, Any], verb: str) -> str:
    return escape.text(command(document, f"brickd {verb}"))


def _problems(document: dict[str, Any], screen: Screen) -> list[str]:
    problems, lines, shown = document["problems"], list[str](), 0
    for problem in problems[:_PROBLEMS]:
        each = wording.problem(problem, screen)
        if lines and len(lines) + len(each) > _PROBLEM_LINES:
            break
        lines += each
        shown += 1
    return lines + wording.more(len(problems) - shown, "more problem", f": {_next(document, 'workers')}")


def _numerics(document: dict[str, Any], screen: Screen) -> list[str]:
    """Return a single line that covers all services with fingerprints or weights."""
    if not document["numerics"]:
        return []
    text = wording.numerics(document["numerics"], command(document, "brickd coverage"))
    return [escape.text(f"numerics  {text}", screen.width)]


def _unproven(document: dict[str, Any], screen: Screen) -> list[str]:
    lines = wording.unproven(with_living_workers(document), document, screen)
    return lines[:_SERVICES] + wording.more(len(lines) - _SERVICES, "more service", " with unproven evidence: --json")


def _workers(document: dict[str, Any], screen: Screen) -> list[str]:
    """Return lines for the unhealthy workers. If there are many workers, one line sums up the healthy ones."""
    workers, outliers = document["workers"], {each["worker"] for each in document["stragglers"] or ()}
    outliers |= {name for key in ("diverged", "weights") for each in document[key] or () for name in each["workers"]}
    shown = list(workers)
    if len(workers) > _WORKERS:
        shown = [worker for worker in workers if not _healthy(worker, outliers)][:_WORKERS]
    lines = tables.figures(_WORKER_FIGURES, map(wording.worker_row, shown), screen.width) if shown else []
    rest = [worker for worker in workers if worker not in shown]
    if rest:
        states: Counter[str] = Counter()
        for worker in rest:
            states["healthy" if _healthy(worker, outliers) else "with a problem"] += worker["together"]
        each = [worker["ledger"]["spans"]["summarized"] for worker in rest]
        text = ", ".join(f"{n} {state}" for state, n in states.items())
        spans = f"{units.count(min(each))} to {units.many(max(each), 'span')} each"
        lines.append(f"…{text}, {spans}: {_next(document, 'workers')}")
    return lines


def _healthy(worker: dict[str, Any], outliers: Container[str]) -> bool:
    return worker["state"] in ("live", "ended") and not worker["problem"] and worker["name"] not in outliers


def _bricks(document: dict[str, Any], screen: Screen, room: int, more: Sequence[str]) -> list[str]:
    if document.get("against") is not None:
        return brick_comparison.lines(document, screen, min(_BRICKS, room - 2))
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
    most = min(_BRICKS, room - 2)
    rows = [
        brick | {"name": brick_columns.name(brick), "share_percent": 100 * brick["self_ns"] / whole if whole else 0}
        for brick in bricks[:most]
    ]
    lines = tables.figures(figures, rows, screen.width) if rows else [brick_columns.nothing(document)]
    return lines + wording.more(len(bricks) - most, "more brick", f": {_next(document, 'bricks')}")
