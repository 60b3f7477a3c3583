"""The screen of workers whose weights differ.

Owns: the order of its lines, its columns. Must not know: how weights are compared. Invariants: The verdict comes first.
Weights that were not compared are reported with the reason.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from brickd.base import escape, units
from brickd.screens import table as tables
from brickd.screens import wording
from brickd.screens.screen import Screen
from brickd.screens.table import WORKER, Column, Figure

if TYPE_CHECKING:
    from brickd.views.common import Document

_ROWS = 12


def render(document: Document, screen: Screen, manifest: str = "") -> list[str]:
    """Return the lines of the screen. `manifest` is the file with which the workers were compared, or ""."""
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
    Figure(WORKER, "worker", str),
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
