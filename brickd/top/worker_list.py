"""The list of services and workers, each with its rate over the last hour.

Owns: the rows of the list, their order, their signs. Must not know: the layout of the screen, textual. Invariants: A
service comes before its workers. A worker with a problem has a sign. Every figure is one of the status document.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from brickd.base import escape, units
from brickd.screens import table, wording
from brickd.screens.table import WORKER, Column, Figure
from brickd.top.sparkline import trend
from brickd.top.state import DAY, State

Document = dict[str, Any]

# The orders of the workers of a service, and for each the key of its value. Names come in the document's order.
ORDERS = {"name": "", "lost": "lost", "spans": "spans", "cpu": "cpu_percent", "memory": "rss_bytes"}
_SICK = ("died", "quarantined")
_TREND, _LEAST = 30, 8  # the cells of a rate on a wide and on a narrow screen
_NARROWEST = 40  # below this width, there is no room for rates

_FIGURES = (
    Figure(WORKER, "name", str),
    Figure(Column("STATE"), "state", str),
    Figure(Column("CPU", "right", spare=3), "cpu_percent", units.percent),
    Figure(Column("RSS", "right", spare=4), "rss_bytes", units.size),
    Figure(Column("SPANS", "right", spare=1), "spans", lambda spans: "" if spans is None else units.count(spans)),
    Figure(Column("LOST", "right", spare=2), "lost", str),
    Figure(Column("OPEN NOW", spare=5), "open", str),
)


class ListedRow(NamedTuple):
    """A service or a worker: its name, its sign, and the values of its cells."""

    name: str
    sign: str
    cells: Document


def rows(document: Document, state: State) -> list[ListedRow]:
    """Return the rows: each service, followed by its workers; files that are not segments come last."""
    of: dict[str | None, list[Document]] = {}
    for worker in document["workers"] or ():  # None: the workers of a past time are not known
        of.setdefault(worker["service"], []).append(worker)
    named = {name for problem in document["problems"] or () for name in problem["workers"]}
    found: list[ListedRow] = []
    for service, workers in sorted(of.items(), key=lambda each: each[0] is None):
        if service is not None:
            found.append(_service(service, workers, document))
        found += [_worker(each, named) for each in _ordered(workers, state.order)]
    return found


def _ordered(workers: Sequence[Document], order: str) -> Sequence[Document]:
    if not (key := ORDERS.get(order, "")):
        return workers

    def value(worker: Document) -> float:
        found = wording.worker_row(worker)["spans"] if key == "spans" else worker[key]
        return float(found or 0)

    return sorted(workers, key=value, reverse=True)


def _service(name: str, workers: Sequence[Document], document: Document) -> ListedRow:
    states: Counter[str] = Counter()
    for worker in workers:
        states[worker["state"]] += worker["together"]
    problem = any(each["service"] == name for each in document["problems"] or ())
    unproven = any(
        each["service"] == name and each["verdict"] == "unproven" and each["recorded"]
        for each in document["evidence"] or ()
    )
    cells = {
        "name": name,
        "state": ", ".join(f"{n:,} {state}" for state, n in states.items()),
        **dict.fromkeys(("cpu_percent", "rss_bytes", "spans")),
        "lost": "",
        "open": "",
    }
    return ListedRow(name, "!" if problem else "~" if unproven else " ", cells)


def _worker(worker: Document, named: set[str]) -> ListedRow:
    sick = worker["name"] in named or worker["state"] in _SICK or worker["problem"]
    sign = "!" if sick else "~" if worker["lost"] else " "
    cells = wording.worker_row(worker)
    return ListedRow(worker["name"], sign, {**cells, "name": f"  {worker['name']}"})


def drawn(
    of: Sequence[ListedRow], histories: Mapping[str, Document], state: State, width: int, *, ascii_only: bool
) -> tuple[str, list[str]]:
    """Return the titles, and a line for each row: the sign, the mark, the figures, and the rate at the right."""
    bars = _bars(width)
    left = max(1, width - 2 - (bars + 2 if bars else 0))
    used = any(row.cells["rss_bytes"] is not None for row in of)
    figures = [each for each in _FIGURES if used or each.key not in ("cpu_percent", "rss_bytes")]
    kept = ORDERS.get(state.order)  # the column by which the workers are sorted is never omitted
    figures = [each._replace(column=each.column._replace(spare=0)) if each.key == kept else each for each in figures]
    head, *body = table.figures(figures, (row.cells for row in of), left)
    lines = []
    for row, text in zip(of, body, strict=True):
        mark = "*" if row.name in state.picked else ">" if row.name == state.subject else " "
        rate = f"  {trend(histories.get(row.name), bars, ascii_only=ascii_only)}" if bars else ""
        lines.append(f"{row.sign}{mark}{text}{' ' * (left - escape.width(text))}{rate}")
    return head, lines


def rates_title(state: State, width: int) -> str:
    """Return the title of the rates in a list of this width, as wide as the rates."""
    bars = _bars(width)
    whole = "SPANS/S, DAY" if state.rates_over == DAY else "SPANS/S, HOUR"
    return (whole if bars >= len(whole) else "SPANS/S").ljust(bars)[:bars]


def _bars(width: int) -> int:
    return 0 if width < _NARROWEST else min(_TREND, max(_LEAST, width // 6))
