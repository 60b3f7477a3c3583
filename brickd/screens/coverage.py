"""The screen of the coverage.

Owns: the order of its lines, its columns. Must not know: how coverage is judged. Invariants: Differences come first,
then the sites that were not compared, grouped by reason. Omitted sites are counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

from brickd.base import escape, units
from brickd.base.unknown_rows import reason
from brickd.model.worker_names import as_argument
from brickd.screens import table as tables
from brickd.screens import wording
from brickd.screens.screen import Screen
from brickd.screens.table import Column
from brickd.shm.sampling import OFF

_FINDINGS = 5
_ROWS = 20
_BRICKS = 8
_STATES = {
    "differs": "differs",
    "not_judged": "unlike, not judged",
    "does_not_repeat": "does not repeat",
    "off": "off: sensitive",
    "left_out": "left out: brickd set",
    "closed": "closed: compiled or copied by torch",
    "unknown": "rows unknown",
    "silent": "nothing recorded",
    "in_turn": "waits for its turn",
    "no_inputs": "no inputs recorded",
    "stateful": "stateful",
    "alone": "no other worker had the same",
    "compared": "compared",
}
_COLUMNS = (
    Column("KERNEL"),
    Column("LAYERS", "right"),
    Column("BY"),
    Column("STATE"),
    Column("FINGERPRINTS", "right", spare=1),
    Column("COMPARED", "right"),
    Column("UNLIKE", "right", spare=2),
    Column("EVICTED", "right", spare=3),
)


def render(document: dict[str, Any], screen: Screen) -> list[str]:
    """Return the lines of the screen."""
    if not document["services"]:
        text = "nothing to compare: no worker has recorded fingerprints (brick.checksum, brick.weights)"
        return [escape.text(text, screen.width)]
    lines: list[str] = []
    for service in document["services"]:
        lines += [*([""] if lines else []), *_service(service, document, screen)]
    return lines + [escape.text(line, screen.width) for line in _window(document)]


def _service(service: dict[str, Any], document: dict[str, Any], screen: Screen) -> list[str]:
    name = service["service"]
    findings = [each for each in document["findings"] if each["service"] == name]
    lines = [
        escape.text(f"{name}  {units.many(service['workers'], 'worker')}  {wording.numerics([service])}", screen.width)
    ]
    if (thinned := service["thinned"]) is not None:
        lines.append(escape.text(_thinned(name, thinned, document["source"]), screen.width))
    lines += [escape.text(line, screen.width) for line in _looked_at(service["row"] or {})]
    for each in findings[:_FINDINGS]:
        lines += wording.finding(_finding(each), each["command"], screen)
    lines += wording.more(len(findings) - _FINDINGS, "more site", " see the workers: --json")
    lines += wording.unproven((each for each in document["evidence"] if each["service"] == name), document, screen)
    rows = [*_rows(each for each in document["sites"] if each["service"] == name)]
    lines += tables.lines(_COLUMNS, rows[:_ROWS], screen.width) if rows else []
    lines += wording.more(len(rows) - _ROWS, "more row", ": --json")
    lines += [escape.text(line, screen.width) for line in _classes(document["sites"], name)]
    bricks = [each["brick"] for each in document["bricks_without_sites"] if each["service"] == name]
    if bricks:
        line = f"bricks without compared numbers: {units.listed(bricks, _BRICKS)}"
        lines.append(escape.text(line, screen.width))
    return lines


def _thinned(service: str, thinned: dict[str, Any], source: str) -> str:
    words = thinned["fingerprints"]
    text = f"fingerprints are recorded only in one step of {words.removeprefix('1/')}"
    if words == OFF:
        text = "no fingerprints are recorded"
    if thinned["instrumented"]:
        text += ", for instrumented models"
    if thinned["workers"] < thinned["of"]:
        text += f", in {thinned['workers']} of {units.many(thinned['of'], 'worker')}"
    command = f"brickd set {as_argument(service)} --fingerprints all"
    return text if source == "recording" else f"{text} ({command})"


def _looked_at(row: dict[str, Any]) -> Iterator[str]:
    """Say in which layers and in which phases rows were examined."""
    phases = [f"{units.count(n)} in {phase}" for phase, n in row.get("phases", {}).items()]
    if not phases:  # an older daemon sends no phases
        return
    layers, waiting = row["layers"], row["layers_in_turn"]
    turns = ""
    if row["turns"]:
        turns = (
            f"; parts take {units.many(row['turns'], 'turn')}, each at least once in {units.duration(row['cycle_ns'])}"
        )
    of = f" of {layers + waiting}" if waiting else ""
    yield f"rows in {layers}{of} {'layer' if layers + waiting == 1 else 'layers'}, calls: {', '.join(phases)}{turns}"


def _finding(finding: dict[str, Any]) -> str:
    if finding["evidence"] == "weights":
        return f"weights: {finding['text']}"
    where = finding["kernel"] if finding["layer"] is None else f"{finding['kernel']} layer {finding['layer']}"
    how = "differ" if len(finding["workers"]) > 1 else "differs"
    times = units.many(finding["cases"], "case")
    return f"{where}: {', '.join(finding['workers'])} {how}, {times} examined"


def _rows(sites: Iterable[dict[str, Any]]) -> Iterator[tuple[str, ...]]:
    """Group the layers of each kernel by their state, and return a row for each group."""

    def alike(site: dict[str, Any]) -> tuple[str, str, bool, tuple[str, ...]]:
        unknown = tuple(site["unknown"]) if site["state"] == "unknown" else ()
        return site["state"], site["kernel"], site["category"] == "weight", unknown

    for (state, kernel, _, unknown), found in groupby(sites, key=alike):
        of = list(found)
        sums = [sum(each[key] for each in of) for key in ("fingerprints", "compared", "unlike", "evicted")]
        layers = _layers([each["layer"] for each in of])
        by = ", ".join(of[0]["evidence"]) or "-"
        text = ": ".join([_STATES[state], *([", ".join(map(reason, unknown))] if unknown else [])])
        yield (kernel or "others", layers, by, text, *map(units.count, sums))


def _classes(sites: Iterable[dict[str, Any]], service: str) -> list[str]:
    """Return a line for each way in which the workers are divided into numeric classes.

    The line names the kernels at which they are divided in this way.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    for each in sites:
        if each["service"] == service and each["numeric_classes"]:
            found.setdefault(" | ".join(map(units.listed, each["numeric_classes"])), []).append(each)
    lines = []
    for division, where in found.items():
        kernels = list(dict.fromkeys(each["kernel"] or "others" for each in where))
        number = len(where[0]["numeric_classes"])
        lines.append(f"in {number} numeric classes: {division}: {units.listed(kernels, _BRICKS)}")
    return lines[:_FINDINGS] + wording.more(len(lines) - _FINDINGS, "more division", " into numeric classes: --json")


def _layers(layers: Sequence[int | None]) -> str:
    """Format layers, which are in ascending order, as a cell.

    >>> _layers([None]), _layers([3]), _layers([0, 1, 2, 3]), _layers([0, 2, 7])
    ('-', '3', '0-3', '3 of 0-7')
    """
    numbers = [layer for layer in layers if layer is not None]
    if not numbers:
        return "-"
    first, last = numbers[0], numbers[-1]
    if first == last:
        return str(first)
    return f"{first}-{last}" if last - first + 1 == len(numbers) else f"{len(numbers)} of {first}-{last}"


def _window(document: dict[str, Any]) -> Iterator[str]:
    window = document["window"]
    if document["source"] == "daemon" and not window["bytes"]:
        yield "nothing is compared: the daemon was started with --numerics-bytes 0"
    elif document["source"] == "daemon":
        age = units.duration(window["oldest_age_ns"])
        kept = f"in memory: {units.many(window['fingerprints'], 'fingerprint')} of the last {age}"
        yield f"since {document['since']}; {kept}, at most {units.size(window['bytes'])}"
    if document["unlooked"]:
        unlooked = units.many(document["unlooked"], "fingerprint")
        sites = sum(each["state"] == "not_judged" for each in document["sites"])
        none = f"; {units.many(sites, 'site')} not judged" if sites else ""
        why = "they were evicted, or enough others of their site were examined"
        yield f"{unlooked} that differ were not examined: {why}{none}"
