"""The verb `diff`.

Owns: the options of `diff`, the exit code. Must not know: how workers are compared, the screen. Invariant: if nothing
could be compared, the exit code never says that workers are equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from brickd.analysis.timing.pace_compare import CALLS_MIN
from brickd.cli import progress
from brickd.cli.ask import noted
from brickd.cli.completion import complete_workers, with_recordings
from brickd.cli.output import emit, output_options, print_message
from brickd.cli.query_options import asks
from brickd.errors import Exit, NothingComparable
from brickd.query.queries import DiffQuery
from brickd.screens.diff import DIFFER, render
from brickd.views import diff_operands

_FAILS = ("diverged", "within", "incomplete", "unproven", "slower")


@click.command()
@asks(DiffQuery, with_recordings(complete_workers), recorded=False)
@click.option("--all", "every", is_flag=True, help="Show every site and every brick.")
@click.option(
    "--context",
    type=click.IntRange(0),
    metavar="N",
    help="Show N sites before and after the first difference.",
)
@click.option(
    "--fail-on",
    "fails",
    type=click.Choice(_FAILS),
    multiple=True,
    help="Exit 1 also for this verdict; diverged always exits 1. With unproven: exit 1 if no computed value could be"
    " compared. With slower: exit 1 if a brick takes longer in the second worker than in the first."
    " May be given several times.",
)
@click.option(
    "--slower-by",
    "percent",
    type=click.FloatRange(0),
    metavar="PERCENT",
    default=5.0,
    show_default=True,
    help="With --fail-on slower: accept a median that is longer by at most PERCENT.",
)
@output_options
def diff(
    *, query: DiffQuery, every: bool, context: int | None, fails: Sequence[str], percent: float, output: str
) -> Exit:
    """Show where the numbers of workers first differ, and why.

    Compares two or more workers. A pattern ('api/*') or a service selects its workers. With three or more workers,
    brickd names the worker that differs from the majority. RECORDING:WORKER is a worker of a recording. With --by run,
    you state that the workers did the same work, so brickd pairs their steps. Exits 1 if the workers diverge. Exits 6
    if nothing can be compared; this never means that the workers are equal.

    \b
    Examples:
      brickd diff api
      brickd diff api/0 api/1
      brickd diff base.brick:api/0 new.brick:api/0 --by run
      brickd diff base.brick:api/0 new.brick:api/0 --fail-on slower --slower-by 10
    """  # noqa: D301
    document = noted(diff_operands.find(query, progress.reading))
    emit(
        document,
        output,
        table=lambda screen: render(document, screen, every, context, times="slower" in fails),
        rows="sites",
    )
    is_slower = "slower" in fails and _is_slower(document, percent)
    if "unproven" in fails and _is_unproven(document):
        if document["verdict"] == "not_comparable":
            print_message(f"unproven: {document['reasons'][0]}")
        return Exit.DIFFERS
    if "slower" not in fails:
        diff_operands.require_comparable(document)
    elif document["verdict"] == "not_comparable":
        print_message(f"only times are compared: {document['reasons'][0]}")
    fail = is_slower or any(document[each] for each in ("within", "incomplete") if each in fails)
    return Exit.DIFFERS if fail or document["verdict"] in (*DIFFER, *fails) else Exit.OK


def _is_slower(document: dict[str, Any], percent: float) -> bool:
    """Whether a brick takes significantly longer in the second worker than in the first, by more than `percent`.

    Raises:
        UsageError: there are not two workers.
        NothingComparable: no brick ran often enough in both workers.
    """
    if len(document["workers"]) != 2:
        raise click.UsageError(
            f"--fail-on slower compares 2 workers, not {len(document['workers'])}: give the old one, then the new one"
        )
    bricks = [row for row in document["timing"]["bricks"] if row["p_value"] is not None]
    if not bricks:
        most = max((min(row[side]["calls"] for side in ("a", "b")) for row in document["timing"]["bricks"]), default=0)
        raise NothingComparable(
            f"no brick ran {CALLS_MIN} times or more in both workers, at most {most}: let the workers run longer"
        )
    changes = [row["difference_percent"] for row in bricks if row["significant"]]
    return any(change is None or change > percent for change in changes)


def _is_unproven(document: dict[str, Any]) -> bool:
    """Whether no computed value was compared or, in a comparison by weights, no weight."""
    classes = document["evidence_classes"]
    outputs = [each for each in classes if each["evidence"] != "weights"]
    return all(each["verdict"] == "unproven" for each in outputs or classes)
