"""Which workers a verb is asked about.

Owns: the argument that names workers and services, the words where there are none. Must not know: what a verb does with
them. Invariant: what was not read is said.
"""

from __future__ import annotations

import click

from brickd.cli.output import say
from brickd.cli.tab import complete_workers
from brickd.workers import Survey, Worker, select, survey

NOBODY = "no workers: nothing on this machine records now (try: brickd demo)"

names_argument = click.argument("names", nargs=-1, metavar="[WORKER|SERVICE]...", shell_complete=complete_workers)


def asked(names: tuple[str, ...]) -> tuple[Survey, list[Worker]]:
    """All that is there, and the workers that are meant: everybody when nothing is named.

    Raises:
        NoSuchWorker: a name that nobody has.
    """
    found = survey()
    workers = select(found.workers, names)
    if found.foreign:
        say(f"segments of other users, not read: {found.foreign}")
    return found, workers
