"""The view `history`: the work of services or workers over the last day, with a row for each period.

Owns: the schema of the document, the length of a row. Must not know: how slots become rows, screens.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from brickd.base.timestamps import rfc3339
from brickd.base.units import SECOND
from brickd.datasources.world import World
from brickd.errors import BrickdError, NoSuchWorker
from brickd.model.brick_totals import per_second
from brickd.model.day_history import DayHistory, HistoryOf, HistoryRow
from brickd.model.survey_snapshot import EVERY_NS
from brickd.model.worker_names import suggestion
from brickd.model.workers import Survey, select
from brickd.query.queries import HistoryQuery
from brickd.views.common import (
    Answer,
    AskedPeriod,
    Document,
    begun,
    ends_now,
    foreign_words,
    nothing_kept,
    other_period,
    period_of,
)

if TYPE_CHECKING:
    from brickd.model.day_slots import DaySlot

_HOUR_S = 3600.0
_ROWS = 30  # without `every`, at most about this many
_NOTHING_YET = f"nothing is kept yet: the daemon has just started, and a slot ends every {EVERY_NS // SECOND} s"
_EVERY_S = (10, 30, 60, 300, 900, 1800, 3600, 7200)


def answer(world: World, query: HistoryQuery) -> Answer:
    """Make a row for each part of the period."""
    query, period, every_ns = _asked(world, query)
    survey = world.survey()
    of = _of(world, query, period, survey)
    history = DayHistory(of, every_ns)
    rows = [*history.rows(world.day_slots(period.began_ns, period.ended_ns, work=of.by_worker))]
    total, words = history.total, survey.words + foreign_words(survey)
    if total is None and not (world.source == "daemon" and ends_now(query)):
        raise nothing_kept(world, period.text)
    words += (_NOTHING_YET,) if total is None else other_period(period, total, world.at_ns())
    if rows and query.brick is not None and query.brick not in history.bricks:
        raise _no_brick(query.brick, history, period)
    return Answer(_document(world, of, total, every_ns, rows), words)


def of_bricks(world: World, query: HistoryQuery, bricks: Sequence[str]) -> dict[str, Answer | BrickdError]:
    """Return what `answer` returns or raises for each of at least one brick of a recording.

    The slots, which take most of the time, are read only once.
    """
    query, period, every_ns = _asked(world, query)
    survey = world.survey()
    of = _of(world, query.replaced(brick=bricks[0]), period, survey)
    history = DayHistory(of, every_ns, bricks)
    for _ in history.rows(world.day_slots(period.began_ns, period.ended_ns, work=of.by_worker)):
        pass
    total = history.total
    if total is None:
        return dict.fromkeys(bricks, nothing_kept(world, period.text))
    words = survey.words + foreign_words(survey) + other_period(period, total, world.at_ns())
    return {
        brick: Answer(_document(world, of._replace(brick=brick), total, every_ns, history.others[brick]), words)
        if brick in history.bricks
        else _no_brick(brick, history, period)
        for brick in bricks
    }


def _no_brick(brick: str, history: DayHistory, period: AskedPeriod) -> BrickdError:
    hint = suggestion(brick, history.bricks)
    return BrickdError(f"no brick {brick} in {period.text}: {hint} (brickd bricks lists them)")


def of_each(world: World, query: HistoryQuery) -> dict[str, Document]:
    """Return the history of each name about which something is known.

    The slots, which take most of the time, are read only once.
    """
    query, period, every_ns = _asked(world, query)
    survey = world.survey()
    histories: dict[str, tuple[HistoryOf, DayHistory, list[HistoryRow]]] = {}
    for name in query.names:
        with contextlib.suppress(NoSuchWorker):
            of = _of(world, query.replaced(names=(name,)), period, survey)
            histories[name] = of, DayHistory(of, every_ns), []
    by_worker = any(of.by_worker for of, _, _ in histories.values())
    for slot in world.day_slots(period.began_ns, period.ended_ns, work=by_worker):
        for _, history, rows in histories.values():
            rows.extend(history.add(slot))
    for _, history, rows in histories.values():
        rows.extend(history.end())
    return {
        name: _document(world, of, history.total, every_ns, rows) for name, (of, history, rows) in histories.items()
    }


def _asked(world: World, query: HistoryQuery) -> tuple[HistoryQuery, AskedPeriod, int]:
    """Return the query with a period, the period, and the length of a row in nanoseconds."""
    if query.since is None and query.over is None:
        query = query.replaced(over=_HOUR_S)
    period = period_of(world, query)
    return query, period, round(_every_s(query, period) * SECOND)


def _document(
    world: World, of: HistoryOf, total: DaySlot | None, every_ns: int, rows: Sequence[HistoryRow]
) -> dict[str, Any]:
    return {
        **begun(world),
        "from": None if total is None else rfc3339(total.began_ns),
        "to": None if total is None else rfc3339(total.ended_ns),
        "over_ns": 0 if total is None else total.covered_ns,
        "every_ns": every_ns,
        "by": "worker" if of.by_worker else "service",
        "brick": of.brick,
        "slots": [_row(each) for each in rows],
    }


def _every_s(query: HistoryQuery, period: AskedPeriod) -> float:
    if query.every is not None:
        return query.every
    length_s = (period.ended_ns - period.began_ns) / SECOND
    return next((each for each in _EVERY_S if length_s <= _ROWS * each), _EVERY_S[-1])


def _of(world: World, query: HistoryQuery, period: AskedPeriod, survey: Survey) -> HistoryOf:
    """Return what the history is about. NoSuchWorker: a name is unknown both now and in the period."""
    services = {each.service for each in survey.workers} | {each.service for each in survey.removed}
    if not (services | {each.name for each in survey.workers}).issuperset(query.names):
        there = {name for slot in world.day_slots(period.began_ns, period.ended_ns, work=False) for name in slot.lost}
        services |= {service for service, _ in there}
        select(survey.workers, query.names, foreign=survey.foreign, services=services | {name for _, name in there})
    by_worker = not services.issuperset(query.names)
    if by_worker and query.brick is not None:
        worker = next(name for name in query.names if name not in services)
        raise BrickdError(
            f"the last day has bricks by service: {worker} is a worker, expected a service (or leave out 'brick')"
        )
    return HistoryOf(query.names, by_worker, query.brick)


def _row(of: HistoryRow) -> dict[str, Any]:
    p50_ns, p99_ns = (None if each is None else round(each) for each in (of.p50_ns, of.p99_ns))
    return {
        "from": rfc3339(of.began_ns),
        "to": rfc3339(of.ended_ns),
        "over_ns": of.covered_ns,
        "workers": of.workers,
        "count": of.spans,
        "count_per_second": per_second(of.spans, of.covered_ns),
        "self_ns": round(of.self_ns),
        "p50_ns": p50_ns,
        "p99_ns": p99_ns,
        "lost": of.lost,
    }
