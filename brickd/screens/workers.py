"""The screen of all workers.

Owns: its columns. Must not know: segments. Invariant: every worker has a row, and every problem has a line.
"""

from __future__ import annotations

from typing import Any

from brickd.base import units
from brickd.screens import wording
from brickd.screens.screen import Screen
from brickd.screens.table import WORKER, Column, EntryTable, Figure


def _share(of: dict[str, int] | None) -> str:
    return "-" if of is None else f"{units.count(of['used'])}/{units.count(of['room'])}"


_FIGURES = (
    Figure(WORKER, "name", str),
    Figure(Column("PID", "right"), "pid", lambda pid: str(pid or "-")),
    Figure(Column("STATE"), "state", str),
    Figure(Column("AGE", "right", spare=2), "age_ns", units.duration),
    Figure(Column("THREADS", "right"), "threads", units.count),
    Figure(Column("LANES", "right", spare=3), "lanes", _share),
    Figure(Column("SPANS", "right"), "spans", units.count),
    Figure(Column("LOST", "right"), "lost", str),
    Figure(Column("PATHS", "right", spare=4), "paths", _share),
    Figure(Column("MEMORY", "right", spare=1), "memory_bytes", units.size),
)
_USAGE = (  # these columns are shown only if an entry has the value
    Figure(Column("CPU", "right", spare=6), "cpu_percent", units.percent),
    Figure(Column("RSS", "right", spare=5), "rss_bytes", units.size),
)
_OPEN = Figure(Column("OPEN NOW"), "open", str)


def render(document: dict[str, Any], screen: Screen) -> list[str]:
    """Return the lines of the screen: the table, then the notes."""
    workers, removed = document["workers"], document["removed"]
    of = {"workers": sum(each["together"] for each in removed), "spans": sum(each["spans"] for each in removed)}
    notes = [line for problem in document["problems"] for line in wording.problem(problem, screen)]
    if lost := wording.lost(document):
        notes.append(f"lost in all: {lost}")
    notes += [*wording.silenced(document["silenced"]), *wording.removed(of, screen)]
    if not workers:
        return [wording.no_workers(document), *notes]
    return table_of(document).lines(screen.width) + notes


def table_of(document: dict[str, Any]) -> EntryTable:
    """Return the table of the workers, in the order of the document."""
    used = any(worker["rss_bytes"] is not None for worker in document["workers"])
    figures = (*_FIGURES, *(_USAGE if used else ()), _OPEN)
    return EntryTable(figures, [wording.worker_row(worker) for worker in document["workers"]])
