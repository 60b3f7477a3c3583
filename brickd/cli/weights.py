"""The verb `weights`.

Owns: its options, its exit code, the wait for a rescan. Must not know: how weights are compared, the screen.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from brickd.base import units
from brickd.cli import progress
from brickd.cli.ask import ask_daemon, asked
from brickd.cli.output import emit, output_options, print_message
from brickd.cli.query_options import ParameterType, asks
from brickd.errors import Exit
from brickd.query.orders import Rescanning
from brickd.query.parameters import Duration
from brickd.query.queries import WeightsQuery
from brickd.screens.weights import render

if TYPE_CHECKING:
    from brickd.views.common import Document

_AGAIN_SECONDS = 0.2
_VERDICTS = {"equal": Exit.OK, "differ": Exit.DIFFERS, "nothing": Exit.NOT_COMPARABLE}


@click.command()
@asks(WeightsQuery)
@click.option(
    "--rescan", is_flag=True, help="Make the workers read their parameters again, and wait for that. Needs a daemon."
)
@click.option(
    "--timeout", type=ParameterType(Duration(0, 86_400, "")), default="1m", show_default=True, metavar="DURATION",
    help="Wait at most this long for --rescan.",
)  # fmt: skip
@click.option(
    "--against",
    type=click.Path(path_type=Path),
    metavar="MANIFEST",
    help="Compare each worker with a file that --save wrote.",
)
@click.option(
    "--save", type=click.Path(path_type=Path), metavar="MANIFEST", help="Write a manifest of the workers' parameters."
)
@output_options
def weights(
    query: WeightsQuery,
    recordings: Sequence[str],
    rescan: bool,
    timeout: float,
    against: Path | None,
    save: Path | None,
    output: str,
) -> Exit:
    """Check whether replicas hold the same parameters.

    Shows the verdict, then each tensor that differs, with its worker and its relative error. Exits 1 if a tensor
    differs. Exits 6 if nothing can be compared.

    \b
    Examples:
      brickd weights api
      brickd weights api --save good.json
      brickd weights --against good.json
    """  # noqa: D301
    if recordings and rescan:
        raise click.UsageError(f"--rescan contradicts recording {recordings[0]}: give one of them")
    if against and save:
        raise click.UsageError("--against contradicts --save: give one of them")
    manifest = None
    if against:
        from brickd.analysis.weights.manifest import load

        manifest = load(against)
    wanted = query.replaced(all=query.all or bool(against or save))
    if rescan:
        document, whole = _rescanned(wanted, timeout)
    else:
        document, whole = asked("weights", wanted, recordings=recordings), True
    if manifest:
        from brickd.analysis.weights.manifest_check import against as held_against

        document = held_against(manifest, document)
    if save:
        _save(save, document)
    if not query.all:
        document.pop("tensors", None)
    rows = "tensors" if query.all else "differing"
    emit(document, output, table=lambda screen: render(document, screen, str(against or "")), rows=rows)
    code = _VERDICTS[document["verdict"]]
    return Exit.OK if save and code is Exit.NOT_COMPARABLE else Exit.TROUBLE if code is Exit.OK and not whole else code


def _rescanned(query: WeightsQuery, seconds: float) -> tuple[Document, bool]:
    """Rescan the workers' weights; return the document, and whether all workers have finished.

    A worker has finished once it has read all its tensors after it got the order.
    """
    began_ns = time.monotonic_ns()
    before = {worker["worker"]: worker["scans"] for worker in ask_daemon("weights", query)["workers"]}
    rescanning = set(ask_daemon("weights/rescan", Rescanning(query.names), post=True)["workers"])
    while True:
        now_ns = time.monotonic_ns()
        document = ask_daemon("weights", query)
        here = [worker for worker in document["workers"] if worker["worker"] in rescanning]
        late = [worker for worker in here if not _has_read(worker, before, now_ns - began_ns)]
        if not late or now_ns - began_ns >= seconds * 1e9:
            break
        progress.show(f"{units.many(len(here) - len(late), 'worker')} of {len(here)} have read their weights once more")
        time.sleep(_AGAIN_SECONDS)
    progress.show("")
    for worker in late[:8]:
        have = f"{worker['tensors']} of {worker['tensors_watched']} tensors are read"
        why = "a worker reads weights at the ends of its steps"
        print_message(f"{worker['worker']} has not read all of its weights within {seconds:g} s ({have}): {why}")
    if len(late) > 8:
        print_message(f"{len(late) - 8} more workers have not read all of their weights")
    for name in sorted(rescanning - {worker["worker"] for worker in here}):
        print_message(f"{name} ended during the rescan")
    return document, not late


def _has_read(worker: dict[str, Any], before: dict[str, int], elapsed_ns: int) -> bool:
    whole = worker["tensors"] >= worker["tensors_watched"] or worker["scans"] > before.get(worker["worker"], 0)
    return whole and worker["age_ns"] is not None and worker["age_ns"] <= elapsed_ns


def _save(path: Path, document: Document) -> None:
    from brickd.analysis.weights.manifest import save

    manifest = save(path, document["tensors"])
    print_message(f"{units.many(len(manifest.tensors), 'tensor')} of {manifest.service} written to {path}")
    for worker in document["workers"]:
        if (known := worker["tensors"]) < (watched := worker["tensors_watched"]):
            print_message(f"{worker['worker']} has read {known} of {watched} tensors; the manifest lacks the others")
