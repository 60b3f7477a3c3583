"""The comparison of a period with the same time a day earlier.

Owns: the schema of the comparison, which time is compared. Must not know: how totals are added up, screens. Invariants:
Only rates and percentiles are compared, because the two times may differ in length. A figure has a change only if it is
known for both times.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from brickd.base.timestamps import local_times, rfc3339
from brickd.base.units import SECOND, plural
from brickd.datasources.world import World
from brickd.errors import BrickdError, NoDaemon
from brickd.model.brick_totals import BrickTotals, bricks
from brickd.views.common import Counted, Document, of_services, services_of

_DAY_NS = 24 * 3600 * SECOND
_FIGURES = ("count_per_second", "p50_ns", "p99_ns")

_Figures = dict[str, Any]


def against_yesterday(
    world: World, names: Sequence[str], over: Counted, now: Sequence[BrickTotals]
) -> tuple[Document, tuple[str, ...]]:
    """Compare the bricks of a period with those of the same time 24 hours earlier; return notes on what is unknown.

    Raises:
        NoDaemon: there is no daemon, so nothing is known of yesterday.
        BrickdError: one of the names is that of a worker.
    """
    if world.source == "shared memory":
        raise NoDaemon("a comparison with yesterday needs a daemon that ran then (start one: brickd up -d)")
    if over.length_ns is None:
        raise BrickdError(
            "a comparison with yesterday needs a period of 10s or more, but the daemon has just started (repeat the"
            " command in 10 s)"
        )
    if over.began_ns is None or over.ended_ns is None:
        ended_ns = world.at_ns() - _DAY_NS
        began_ns = ended_ns - over.length_ns
    else:
        began_ns, ended_ns = over.began_ns - _DAY_NS, over.ended_ns - _DAY_NS
    slot = world.day(began_ns, ended_ns)
    then = [] if slot is None else bricks(of_services(slot, names))
    known = _figures(then, 0 if slot is None else slot.covered_ns)
    rows = [
        {"name": name, "bounded": bounded, "now": new, "then": old, "change_percent": _changes(new, old)}
        for (name, bounded), (new, old) in _paired(_figures(now, over.length_ns), known).items()
    ]
    document = {
        "day": "yesterday",
        "from": None if slot is None else rfc3339(slot.began_ns),
        "to": None if slot is None else rfc3339(slot.ended_ns),
        "over_ns": 0 if slot is None else slot.covered_ns,
        "bricks": rows,
    }
    if slot is None:
        times = local_times(began_ns, ended_ns, world.at_ns())
        return document, (f"nothing is kept of {times}, so nothing is compared (brickd history --over 48h)",)
    if absent := sorted(set(names) - services_of(slot)):
        return document, (f"service {absent[0]} recorded nothing yesterday, so it is not compared",)
    unknown = sum(each["then"] is None for each in rows), sum(each["now"] is None for each in rows)
    words = (
        f"{plural(unknown[0], 'brick')} recorded nothing yesterday" if unknown[0] else "",
        f"{plural(unknown[1], 'brick')} recorded something yesterday, but nothing now" if unknown[1] else "",
    )
    return document, tuple(filter(None, words))


def _figures(of: Sequence[BrickTotals], length_ns: int) -> dict[tuple[str, bool], _Figures]:
    rows = {(brick.name, brick.bounded): brick.document(over_ns=length_ns) for brick in of}
    return {key: {figure: row[figure] for figure in _FIGURES} for key, row in rows.items()}


def _paired(
    now: dict[tuple[str, bool], _Figures], then: dict[tuple[str, bool], _Figures]
) -> dict[tuple[str, bool], tuple[_Figures | None, _Figures | None]]:
    """Return the figures of both times; the present bricks come first, in their order."""
    return {key: (now.get(key), then.get(key)) for key in (now | then)}


def _changes(now: _Figures | None, then: _Figures | None) -> dict[str, float | None]:
    return {
        figure: None if not (now and then and now[figure] and then[figure]) else _percent(now[figure], then[figure])
        for figure in _FIGURES
    }


def _percent(now: float, then: float) -> float:
    return round(100 * (now / then - 1), 2)
