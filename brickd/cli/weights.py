"""The verb `weights`.

Owns: the screen of workers whose weights differ, and the wait for a rescan. Must not know: how weights are compared.
Invariants: The verdict comes first. Weights that were not compared are reported with the reason.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from brickd.base import escape, units
from brickd.cli import progress
from brickd.cli.ask import ask_daemon, asked
from brickd.cli.output import emit, output_options, print_message
from brickd.cli.query_options import ParameterType, asks
from brickd.errors import Exit
from brickd.query.orders import Rescanning
from brickd.query.parameters import Duration
from brickd.query.queries import WeightsQuery
from brickd.screens import table as tables
from brickd.screens import wording
from brickd.screens.screen import Screen
from brickd.screens.table import Column, Figure

if TYPE_CHECKING:
    from brickd.views.common import Document

_ROWS = 12
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
    emit(document, output, table=lambda screen: _render(document, screen, str(against or "")), rows=rows)
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


# ---- the screen


def _render(document: Document, screen: Screen, manifest: str) -> list[str]:
    lines = [screen.paint(escape.text(headline, screen.width), "yellow") for headline in document["headlines"]]
    several = len(document["services"]) > 1
    for service in document["services"]:
        if verdict := _verdict(service, manifest):
            lines.append(escape.text(f"{service['service']}: {verdict}" if several else verdict, screen.width))
    if not document["services"]:
        lines.append(wording.no_workers(document))
    if "tensors" in document:
        lines += ["", *tables.figures(_TENSORS, document["tensors"], screen.width)]
    elif document["differing"]:
        lines += ["", *_differing(document, screen)]
    notes = [escape.text(note, screen.width) for note in _notes(document)]
    return [*lines, *([""] if notes and len(lines) > 1 else []), *notes]


def _verdict(service: Mapping[str, Any], manifest: str) -> str:
    if service["verdict"] == "nothing":
        return "nothing to compare"
    text = f"{service['equal']} of {units.many(service['workers'], 'worker')} equal"
    text += f" to {manifest}" if manifest else ""
    text += f", {units.many(service['compared'], 'tensor')}"
    return ", ".join([text, *wording.weights_read([service])])


def _differing(document: Document, screen: Screen) -> Iterator[str]:
    rows = document["differing"]
    shown = rows if len(rows) <= _ROWS else rows[: _ROWS - 1]
    filled = [{**row, "error": _error(row), "wanted": _wanted(row)} for row in shown]
    yield from tables.figures(_ROWS_SHOWN, filled, screen.width)
    for line in wording.more(document["differing_count"] - len(shown), "more line", ": --json"):
        yield escape.text(line, screen.width)


def _error(row: Mapping[str, Any]) -> str:
    if row["nan"] or row["pos_inf"] or row["neg_inf"]:
        return "NaN" if row["nan"] else "Inf"
    return "-" if row["relative_error"] is None else units.relative(row["relative_error"])


def _wanted(row: Mapping[str, Any]) -> str | None:
    """Return the expected checksum; "unknown" if the workers disagree and none of them is the reference."""
    return None if row["why"] == "disagree" else row["checksum_against"]


def _notes(document: Document) -> Iterator[str]:
    """Return the notes about workers. Workers with the same note share a line."""
    notes: dict[str, list[str]] = defaultdict(list)
    for worker in document["workers"]:
        for note in _of_worker(worker, recorded="recording" in document):
            notes[note].append(worker["worker"])
    for note, names in notes.items():
        yield f"{units.listed(names, 3 if len(names) > 4 else 4)}: {note}"
    for service in document["services"]:
        if service["changed_alike"]:
            tensors = units.many(service["changed_alike"], "tensor")
            yield (
                f"{service['service']}: {tensors} changed in place, equally in all workers (after an update of the"
                " weights, the engine must call brick.weights(model) again)"
            )


def _of_worker(worker: Mapping[str, Any], *, recorded: bool) -> Iterator[str]:
    known, watched, unreadable = (worker[key] for key in ("tensors", "tensors_watched", "tensors_unreadable"))
    if not known and not watched:
        yield "no weights are watched (call brick.weights(model) in the engine)"
    elif not known and not unreadable:
        yield f"{units.many(watched, 'tensor')} not read yet{'' if recorded else ' (brickd weights --rescan)'}"
    elif known + unreadable < watched:
        yield f"{known} of {watched} tensors are read; the others are not read yet"
    if unreadable:
        yield f"{units.many(unreadable, 'tensor')} cannot be read: on a device, sparse, or of an unknown type"
    if once := worker.get("tensors_load_only", 0):  # an older daemon does not send this key
        yield f"{units.many(once, 'tensor')} read at load only{'' if recorded else ' (brickd weights --rescan)'}"
    for reason, count in worker["not_comparable"].items():
        yield f"{units.many(count, 'tensor')} not compared: {_REASONS.get(reason, reason)}"
    if worker["missing"]:
        yield f"{units.many(worker['missing'], 'tensor')} missing, which the other workers have"
    if worker["with_nan"]:
        yield f"{units.many(worker['with_nan'], 'tensor')} with NaN"
    if worker["with_inf"]:
        yield f"{units.many(worker['with_inf'], 'tensor')} with infinities"
    if worker["no_room"]:
        yield f"{units.many(worker['no_room'], 'record')} of weights did not fit into the event ring"


_REASONS = {
    "alone": "no other worker holds this shard (--against MANIFEST compares with a file)",
    "missing": "no other worker has these tensors",
    "generation": "the tensors of the other workers are of another generation",
    "key": "the checksums are made with another key (use the same BRICKD_KEY_FILE for all workers)",
    "shard": "the manifest has no tensors of this shard",
    "not in the manifest": "the manifest does not have these tensors",
}

_TENSOR = (
    Figure(Column("TENSOR"), "tensor", str),
    Figure(Column("LAYER", "right"), "layer", wording.identifier),
    Figure(Column("EXPERT", "right", spare=1), "expert", wording.identifier),
)
_ROWS_SHOWN = (
    Figure(Column("WORKER"), "worker", str),
    *_TENSOR,
    Figure(Column("ERROR", "right"), "error", str),
    Figure(Column("CHECKSUM", spare=2), "checksum", wording.identifier),
    Figure(Column("EXPECTED", spare=3), "wanted", wording.identifier),
)
_TENSORS = (
    Figure(Column("SERVICE", spare=2), "service", str),
    Figure(Column("SHARD", spare=1), "shard", str),
    *_TENSOR,
    Figure(Column("DTYPE", spare=3), "dtype", str),
    Figure(Column("SHAPE", spare=3), "shape", lambda shape: "×".join(map(str, shape))),
    Figure(Column("CHECKSUM"), "checksum", str),
    Figure(Column("WORKERS"), "workers", ", ".join),
)
