"""The verb `prune`.

Owns: the text about a removal. Must not know: how brickd finds out that a worker is dead.
"""

from __future__ import annotations

from collections.abc import Mapping

import click

from brickd.base import units
from brickd.base.escape import text as escaped
from brickd.base.paths import runtime
from brickd.cli.ask import ask_daemon, asked
from brickd.cli.output import emit, output_options, print_message
from brickd.cli.progress import watch
from brickd.cli.query_options import asks
from brickd.client.client import TurnedAway
from brickd.daemon import prune as pruning
from brickd.datasources.shared_memory import left_behind
from brickd.errors import (
    CheckpointRefused,
    DaemonRefused,
    NoDaemon,
    NoSuchWorker,
    SegmentRefused,
    SegmentUnopened,
    SegmentUnrecorded,
)
from brickd.query.orders import Forgetting
from brickd.query.queries import StatusQuery, WorkersQuery
from brickd.screens.screen import Screen
from brickd.shm import removed_file
from brickd.shm.segment_files import prefix


@click.command()
@click.option("--dry-run", is_flag=True, help="Print the files to remove, but remove nothing.")
@click.option(
    "--refused", is_flag=True, help="Also remove files that have a segment's name but are not valid segments."
)
@asks(WorkersQuery, recorded=False)
@output_options
def prune(query: WorkersQuery, dry_run: bool, refused: bool, output: str) -> None:
    """Remove the segments of workers that ended or died.

    A worker counts as died if its lock is free and its segment did not change for five seconds. The daemon also forgets
    the totals of the removed workers. Each removed segment leaves a small record, so that brickd still counts its
    spans, as removed.
    """
    if refused and query.names:
        raise click.UsageError(f"--refused contradicts a worker's name, {query.names[0]}: give one of them")
    dead = _dead(query)
    uuids = None if dead is None else set(dead)
    noted = 0 if dead is not None else asked("status", StatusQuery())["removed"]["unasked_workers"]
    # Workers are forgotten first, because the removals below need room for their records.
    forgotten = _forget(dead, dry_run, wanted=bool(noted or removed_file.look(prefix()).full))
    outcome = pruning.prune(remove=not dry_run, refused_too=refused, uuids=uuids, wait=watch)
    if outcome.removed and not dry_run:  # the old checkpoint may list these workers as live
        forgotten += _forget(dead, dry_run, wanted=runtime().checkpoint.exists())
    document = {
        "schema_version": 1,
        "dry_run": dry_run,
        "forgotten": forgotten,
        "noted": noted,
        "removed": [
            {"segment": one.file, "spans": one.spans, "memory_bytes": one.memory_bytes} for one in outcome.removed
        ],
        "refused": [{"segment": one.path, "reason": one.reason} for one in outcome.refused],
    }
    for one in outcome.refused:
        print_message(f"not removed: {one}{_hint(one, refused)}")

    def table(_: Screen) -> list[str]:
        would = "would " if dry_run else ""
        if not outcome.removed and not forgotten and not noted:
            return ["nothing to remove: no worker has ended or died"]
        lines = [
            f"{would}remove{'' if dry_run else 'd'} {escaped(one.file)}  {units.many(one.spans, 'span')}"
            f"  {units.size(one.memory_bytes)}"
            for one in outcome.removed
        ]
        if forgotten:
            workers = units.many(forgotten, "worker")
            lines.append(f"{'would forget' if dry_run else 'forgot'} the totals of {workers} that a daemon kept")
        if noted:
            workers = units.many(noted, "removed worker")
            done = "would no longer report" if dry_run else "no longer reports"
            lines.append(f"brickd status {done} {workers} as a problem; their spans stay counted")
        return lines

    emit(document, output, table=table, rows="removed")


def _dead(query: WorkersQuery) -> dict[str, str] | None:
    """Return the dead workers among the named ones, by uuid; None if no name was given.

    Raises:
        NoSuchWorker: no worker has such a name, or all of these workers are alive.
    """
    if not query.names:
        return None
    meant = asked("workers", query, recordings=None)["workers"]
    dead = {each["uuid"]: each["name"] for each in meant if each["state"] in ("died", "ended")}
    if not dead:
        who = " or ".join(query.names)
        raise NoSuchWorker(f"{who} is live, expected a worker that ended or died (brickd workers lists these)")
    return dead


def _forget(dead: Mapping[str, str] | None, dry_run: bool, *, wanted: bool) -> int:
    """Make the daemon forget dead workers, unless it is a dry run; return the number of forgotten workers.

    Without a daemon, remove the dead workers from the checkpoint. `wanted`: write the checkpoint again even if it has
    no dead worker.
    """
    try:
        order = Forgetting(() if dead is None else tuple(dead.values()), dry_run)
        forgotten: int = ask_daemon("forget", order, post=True)["forgotten"]
        return forgotten
    except TurnedAway:  # a daemon of another user, whose workers are not visible here
        return 0
    except NoDaemon:
        left = left_behind()[0]
        kept = [each for each in (*left.gone.values(), *left.older) if dead is None or each.reading.uuid in dead]
        if dry_run or not (kept or wanted):
            return sum(each.workers for each in kept)
        from brickd.state.runtime_dir import Home

        try:
            with Home(runtime()) as home:
                return home.forget(prefix(), dead)
        except (DaemonRefused, CheckpointRefused) as error:
            print_message(f"the daemon's totals are unchanged: {error}")
            return 0


def _hint(one: SegmentRefused, refused_too: bool) -> str:
    if isinstance(one, SegmentUnopened | SegmentUnrecorded):
        return " (brickd doctor says what to do)"
    return "" if refused_too else " (brickd prune --refused removes your own)"
