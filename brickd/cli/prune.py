"""The verb `prune`.

Owns: what is said about a removal. Must not know: on which evidence it happens.
"""

from __future__ import annotations

from collections.abc import Mapping

import click

from brickd import prune as pruning
from brickd import units
from brickd.cli.answers import asked, told
from brickd.cli.asking import asks
from brickd.cli.output import Screen, emit, output_options, say
from brickd.cli.waiting import watch
from brickd.client import TurnedAway
from brickd.errors import NoDaemon, NoSuchWorker, SegmentRefused, SegmentUnopened
from brickd.escape import text as escaped
from brickd.orders import Forgetting
from brickd.questions.workers import WorkersQuestion
from brickd.runtime import runtime
from brickd.world import left_behind


@click.command()
@click.option("--dry-run", is_flag=True, help="Tell what would be removed; remove nothing.")
@click.option("--refused", is_flag=True, help="Also what only has a segment's name, or is of another format.")
@asks(WorkersQuestion)
@output_options
def prune(question: WorkersQuestion, dry_run: bool, refused: bool, output: str) -> None:
    """Remove the segments of dead workers, and what a daemon kept of those before them."""
    if refused and question.names:
        raise click.UsageError("--refused is of files that are no worker's, and names are of workers: give one of both")
    dead = _dead(question)
    uuids = None if dead is None else set(dead)
    outcome = pruning.prune(remove=not dry_run, refused_too=refused, uuids=uuids, wait=watch)
    left = left_behind()[0]
    kept = [each for each in (*left.gone.values(), *left.older) if uuids is None or each.reading.uuid in uuids]
    forgotten = sum(gone.workers for gone in kept) if dry_run else _forget(dead, bool(kept))
    document = {
        "schema_version": 1,
        "dry_run": dry_run,
        "forgotten": forgotten,
        "removed": [
            {"segment": one.file, "spans": one.spans, "memory_bytes": one.memory_bytes} for one in outcome.removed
        ],
        "refused": [{"segment": one.path, "reason": one.reason} for one in outcome.refused],
    }
    for one in outcome.refused:
        say(f"left alone: {one}{_hint(one, refused)}")

    def table(_: Screen) -> list[str]:
        would = "would " if dry_run else ""
        if not outcome.removed and not forgotten:
            return ["nothing to remove: no dead worker has left a segment"]
        lines = [
            f"{would}remove{'' if dry_run else 'd'} {escaped(one.file)}  {units.many(one.spans, 'span')}"
            f"  {units.size(one.memory_bytes)}"
            for one in outcome.removed
        ]
        if forgotten:
            workers = units.many(forgotten, "worker")
            lines.append(f"{'would forget' if dry_run else 'forgot'} the totals of {workers} that a daemon kept")
        return lines

    emit(document, output, table=table, rows="removed")


def _dead(question: WorkersQuestion) -> dict[str, str] | None:
    """What the dead who are meant are called, by uuid; None: nobody is named, so that all are.

    Raises:
        NoSuchWorker: nobody has such a name, or none who has died.
    """
    if not question.names:
        return None
    meant = asked("workers", question)["workers"]
    dead = {each["uuid"]: each["name"] for each in meant if each["state"] in ("dead", "ended")}
    if not dead:
        who = " or ".join(question.names)
        raise NoSuchWorker(f"no dead worker {who}: it lives, wanted is one that has ended (see brickd workers)")
    return dead


def _forget(dead: Mapping[str, str] | None, kept: bool) -> int:
    """Have the dead forgotten: by the daemon, or in the checkpoint that it has left; of how many the totals were."""
    try:
        order = Forgetting(() if dead is None else tuple(dead.values()))
        forgotten: int = told("forget", order, post=True)["forgotten"]
        return forgotten
    except TurnedAway:  # whoever may not ask it is not shown them either
        return 0
    except NoDaemon:
        if not kept:
            return 0
        from brickd.home import Home

        with Home(runtime()) as home:
            return home.forget(dead)


def _hint(one: SegmentRefused, refused_too: bool) -> str:
    if isinstance(one, SegmentUnopened):
        return " (brickd doctor says what to do)"
    return "" if refused_too else " (brickd prune --refused removes your own)"
