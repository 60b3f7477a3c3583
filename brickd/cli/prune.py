"""The verb `prune`.

Owns: what is said about a removal. Must not know: on which evidence it happens.
"""

from __future__ import annotations

import click

from brickd import prune as pruning
from brickd import units
from brickd.cli.output import Screen, emit, output_options, say
from brickd.cli.waiting import watch
from brickd.errors import SegmentRefused, SegmentUnopened
from brickd.escape import text as escaped


@click.command()
@click.option("--dry-run", is_flag=True, help="Tell what would be removed; remove nothing.")
@click.option("--refused", is_flag=True, help="Also what only has a segment's name, or is of another format.")
@output_options
def prune(dry_run: bool, refused: bool, output: str) -> None:
    """Remove the segments of dead workers."""
    outcome = pruning.prune(remove=not dry_run, refused_too=refused, wait=watch)
    document = {
        "schema_version": 1,
        "dry_run": dry_run,
        "removed": [
            {"segment": one.file, "spans": one.spans, "memory_bytes": one.memory_bytes} for one in outcome.removed
        ],
        "refused": [{"segment": one.path, "reason": one.reason} for one in outcome.refused],
    }
    for one in outcome.refused:
        say(f"left alone: {one}{_hint(one, refused)}")

    def table(_: Screen) -> list[str]:
        would = "would remove" if dry_run else "removed"
        if not outcome.removed:
            return ["nothing to remove: no dead worker has left a segment"]
        return [
            f"{would} {escaped(one.file)}  {units.many(one.spans, 'span')}  {units.size(one.memory_bytes)}"
            for one in outcome.removed
        ]

    emit(document, output, table=table, rows="removed")


def _hint(one: SegmentRefused, refused_too: bool) -> str:
    if isinstance(one, SegmentUnopened):
        return " (brickd doctor says what to do)"
    return "" if refused_too else " (brickd prune --refused removes your own)"
