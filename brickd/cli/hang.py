"""The verb `hang`.

Owns: the screen of a hang, and the wait between the two looks. Must not know: how a verdict is reached.
Invariant: the verdicts come first.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from brickd.base import escape, units
from brickd.cli import progress
from brickd.cli.ask import noted
from brickd.cli.output import emit, output_options
from brickd.cli.query_options import asks
from brickd.errors import Exit
from brickd.query.queries import HangQuery
from brickd.screens import table as tables
from brickd.screens import wording
from brickd.screens.screen import Screen
from brickd.screens.table import Column, Figure
from brickd.views import fetch_answer
from brickd.views.fetch_answer import Passes

if TYPE_CHECKING:
    from brickd.datasources.world import World
    from brickd.views.common import Answer

_WATCHED, _RECORDED = "brickd.cli.hang:watched", "brickd.views.hang:of_recording"
_NEAREST = 8
_AT_ONCE_SECONDS = 0.05


@click.command()
@asks(HangQuery)
@output_options
def hang(query: HangQuery, recordings: Sequence[str], output: str) -> Exit:
    """Show which spans are open, and name the worker that is stuck.

    Reads each thread twice, --watch DURATION apart. If a service has three or more workers, names the worker that the
    others wait for, or the worker that is stuck while the others move. For a recording, compares the last two
    snapshots. You can run this command long after the hang began. Exits 1 if it names a worker.

    \b
    Examples:
      brickd hang
      brickd hang api --watch 5
    """  # noqa: D301
    found = fetch_answer.find(
        "hang",
        query,
        recordings=recordings,
        view=_RECORDED if recordings else _WATCHED,
        seconds=query.watch,
        meanwhile=partial(_wait, query),
        reading=progress.reading,
    )
    document = noted(found)
    emit(document, output, table=lambda screen: _render(document, screen), rows="open")
    return Exit.DIFFERS if any(service["odd"] for service in document["services"]) else Exit.OK


def _wait(query: HangQuery, passes: Passes) -> None:
    """Show progress while the daemon watches the workers. If there are no workers, the daemon answers immediately."""
    if not passes(_AT_ONCE_SECONDS):
        progress.watch(query.watch, passes)


def watched(world: World, query: HangQuery) -> Answer:
    """Read the workers twice without a daemon, and wait between the two looks."""
    from brickd.views import hang

    before = hang.look(world, query)
    if before.workers:
        progress.watch(query.watch)
    return hang.answer(world, query, before)


def _render(document: dict[str, Any], screen: Screen) -> list[str]:
    if not document["open"]:
        return [wording.no_workers(document)]
    lines = []
    for service in document["services"]:
        line = escape.text(f"{service['service']}: {service['text']}")
        lines.append(screen.paint(line, "red") if service["odd"] else line)
    return lines + tables.figures(_FIGURES, document["open"], screen.width)


def _inside(path: Sequence[str]) -> str:
    """Return the outer bricks, the innermost one first. A cell is cut at its end, so these stay visible."""
    around = path[-2::-1]
    return " < ".join([*around[:_NEAREST], *(["…"] if len(around) > _NEAREST else [])])


_FIGURES = (
    Figure(Column("WORKER"), "worker", str),
    Figure(Column("LANE", "right", spare=3), "lane", units.count),
    Figure(Column("THREAD", "right", spare=2), "thread", wording.identifier),
    Figure(Column("STATE"), "state", str),
    Figure(Column("FOR", "right"), "since_ns", units.duration),
    Figure(Column("BRICK"), "brick", lambda brick: brick or "-"),
    Figure(Column("LAYER", "right", spare=4), "layer", wording.identifier),
    Figure(Column("OPEN", "right", spare=5), "open", units.count),
    Figure(Column("INSIDE", spare=1), "path", _inside),
)
