"""The verb `hang`.

Owns: its options, and the wait between the two looks. Must not know: how a verdict is reached, the screen.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import click

from brickd.cli import progress
from brickd.cli.ask import noted
from brickd.cli.output import emit, output_options
from brickd.cli.query_options import asks
from brickd.errors import Exit
from brickd.query.queries import HangQuery
from brickd.screens.hang import render
from brickd.views import fetch_answer
from brickd.views.fetch_answer import Passes

if TYPE_CHECKING:
    from brickd.datasources.world import World
    from brickd.views.common import Answer

_WATCHED, _RECORDED = "brickd.cli.hang:watched", "brickd.views.hang:of_recording"
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
    emit(document, output, table=lambda screen: render(document, screen), rows="open")
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
