"""Which workers a verb is asked about.

Owns: the argument that names workers and services, the words where there are none. Must not know: what a verb does with
them. Invariants: what was not read is said; where nothing may be read, nobody is told that nothing is there.
"""

from __future__ import annotations

import click

from brickd.cli.output import say
from brickd.cli.tab import complete_workers
from brickd.errors import NotPermitted
from brickd.workers import Survey, Worker, select, survey, unread

NOBODY = "no workers: nothing on this machine records now (try: brickd demo)"

names_argument = click.argument("names", nargs=-1, metavar="[WORKER|SERVICE]...", shell_complete=complete_workers)


def asked(names: tuple[str, ...]) -> tuple[Survey, list[Worker]]:
    """All that is there, and the workers that are meant: everybody when nothing is named.

    Raises:
        NoSuchWorker: a name that nobody has.
        NotPermitted: nothing is named, and all that is there belongs to others.
    """
    found = survey()
    if not names:
        require_readable(found)
    workers = select(found.workers, names, foreign=found.foreign)
    if found.foreign:
        say(unread(found.foreign))
    return found, workers


def require_readable(found: Survey) -> None:
    """Refuse to go on where there are segments and none may be read: that is not the same as nothing.

    Raises:
        NotPermitted: all that is there belongs to others.
    """
    if found.foreign and not found.workers and not found.refused:
        raise NotPermitted(unread(found.foreign))
