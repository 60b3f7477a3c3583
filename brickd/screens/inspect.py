"""The screen of one segment.

Owns: the order of its lines, its columns. Must not know: how a segment is read. Invariant: the values in the segment
are shown unchanged, except for escapes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from brickd.base import units
from brickd.base.escape import text as escaped
from brickd.screens import table as tables
from brickd.screens import wording
from brickd.screens.screen import Screen
from brickd.screens.table import Column, Figure
from brickd.shm.sampling import DEFAULT


def _if_known(write: Callable[[Any], str]) -> Callable[[Any], str]:
    return lambda value: "" if value is None else write(value)


def _short(hexadecimal: str) -> str:
    """Format a 64-bit number without its leading zeros, because it is usually small."""
    return hexadecimal.lstrip("0") or "0"


_LANES = (
    Figure(Column("LANE"), "number", str),
    Figure(Column("THREAD", "right"), "thread", lambda thread: str(thread or "free")),
    Figure(Column("THREADS EVER", "right"), "opened", units.count),
    Figure(Column("BEGUN", "right"), "begun", units.count),
    Figure(Column("SUMMARIZED", "right"), "summarized", units.count),
    Figure(Column("OPEN", "right"), "open", units.count),
    Figure(Column("ABANDONED", "right"), "abandoned", units.count),
    Figure(Column("REJECTED", "right"), "rejected", lambda counts: units.count(sum(counts))),
    Figure(Column("IN RINGS EVER", "right"), "in_rings", units.count),
    Figure(Column("DROPPED", "right"), "dropped", units.count),
)
_SPANS = (
    Figure(Column("#", "right"), "sequence", str),
    Figure(Column("BRICK"), "brick", str),
    Figure(Column("LAYER", "right"), "layer", wording.identifier),
    Figure(Column("AT (µs)", "right"), "at_us", _if_known("{:,.1f}".format)),
    Figure(Column("DURATION", "right"), "duration_ns", units.duration),
    Figure(Column("ELEMENTS", "right"), "elements", units.count),
    Figure(Column("STEP"), "step", _if_known(str)),
)
_EVENTS = (
    Figure(Column("#", "right"), "sequence", str),
    Figure(Column("EVENT"), "kind", str),
    Figure(Column("BRICK"), "brick", _if_known(str)),
    Figure(Column("LAYER", "right"), "layer", str),
    Figure(Column("AT (µs)", "right"), "at_us", _if_known("{:,.1f}".format)),
    Figure(Column("DURATION", "right"), "duration_ns", _if_known(units.duration)),
    Figure(Column("ELEMENTS", "right"), "elements", _if_known(units.count)),
    Figure(Column("STREAM", "right"), "stream", str),
    Figure(Column("ID", "right"), "id", _if_known(_short)),
    Figure(Column("STEP"), "step", _if_known(str)),
)
_CHECKSUMS = (
    Figure(Column("#", "right"), "sequence", str),
    Figure(Column("KERNEL"), "brick", str),
    Figure(Column("LAYER", "right"), "layer", wording.identifier),
    Figure(Column("AT (µs)", "right"), "at_us", _if_known("{:,.1f}".format)),
    Figure(Column("STEP"), "step", _if_known(str)),
    Figure(Column("POSITION", "right"), "position", str),
    Figure(Column("DTYPE"), "dtype", _if_known(str)),
    Figure(Column("SHAPE"), "shape", lambda shape: "x".join(map(str, shape)) or "-"),
    Figure(Column("CHECKSUM"), "checksum", str),
    Figure(Column("INPUTS", "right"), "inputs", lambda inputs: str(len(inputs))),
)


def render(document: dict[str, Any], screen: Screen) -> list[str]:
    """Return the lines of the screen."""
    header, process, control = document["header"], document["process"], document["control"]
    spans = document["ledger"]["spans"]
    lines = [
        f"segment   {escaped(document['segment'])}  format {header['major']}.{header['minor']}"
        f"  {units.size(header['size'])} reserved",
        f"worker    {escaped(document['worker'] or '-')}  pid {document['pid']}  {document['state']}"
        f"  uuid {header['uuid']}",
        f"clock     {header['clock']}  {document['tick_ns']:.6f} ns a tick",
        f"room      {units.many(header['lanes'], 'lane')}, {process['paths']} of {header['paths']} paths,"
        f" {process['names']} of {header['names']} names, {header['span_slots']} slots a span ring,"
        f" {header['event_slots']} an event ring",
        f"consumer  {'pid ' + str(document['consumer_pid']) if document['consumer_pid'] is not None else 'none'}"
        f"  control flags {control['flags']:#x}: spans {control['spans']}, recording {control['recording']}"
        f"{_thinned(document)}",
        "ledger    " + "  ".join(f"{term} {units.count(n)}" for term, n in spans.items() if n or term == "begun"),
    ]
    if sites := document["sites"]:
        lines.append(_sites(sites, header["sites"]))
    if events := _event_ledger(document["ledger"]["events"]):
        lines.append("events    " + events)
    if (marks := document["ledger"]["marks"])["wanted"]:
        lines.append("marks     " + "  ".join(f"{term} {units.count(n)}" for term, n in marks.items() if n))
    refused = {term: n for term, n in process.items() if n and term not in ("names", "paths", "sites", "key")}
    if wrong := sum(lane["amounts"] for lane in document["lanes"]):
        refused["wrong arguments"] = wrong
    if refused:
        lines.append("counted   " + "  ".join(f"{term} {units.count(n)}" for term, n in refused.items()))
    newest = document["newest_since_start_ns"]
    if newest is not None:
        lines.append(f"newest    record {units.duration(newest)} after the start: AT is relative to it, in µs")
    lanes = [
        lane
        | {
            "in_rings": lane["span_head"] + lane["event_records"],
            "dropped": sum(lane["span_dropped"]) + sum(lane["event_dropped"]),
        }
        for lane in document["lanes"]
    ]
    lines += tables.figures(_LANES, lanes, screen.width)
    for lane in document["lanes"]:
        if lane["spans"]:
            lines.append(f"span ring of lane {lane['number']}, newest last:")
            lines += tables.figures(_SPANS, _timed(lane["spans"], newest), screen.width)
        timed = _timed(lane["events"], newest)
        if others := [_event(event) for event in timed if event["checked"] is None]:
            lines.append(f"event ring of lane {lane['number']}, newest last:")
            lines += tables.figures(_EVENTS, others, screen.width)
        if checksums := [_checksum(event) for event in timed if event["checked"] is not None]:
            lines.append(f"checksums in the event ring of lane {lane['number']}, newest last:")
            lines += tables.figures(_CHECKSUMS, checksums, screen.width)
    if document["taken"] is not None:
        for title, key in (("newest last", "newest"), ("the longest of each place", "longest")):
            if document["taken"][key]:
                lines.append(f"taken from the span rings by the daemon, {title}:")
                lines += tables.figures(_SPANS, _timed(document["taken"][key], newest), screen.width)
    return lines


def _thinned(document: dict[str, Any]) -> str:
    """Describe which steps and sites are fingerprinted."""
    control, configured = document["control"], document["configured"]["fingerprints"]
    current = f", fingerprints {control['fingerprints']}" if control["fingerprints"] != DEFAULT else ""
    started = f", started with fingerprints {configured}" if configured != DEFAULT else ""
    return f"{current}{', some sites left out' if control['filtered'] else ''}{started}"


def _timed(records: Sequence[dict[str, Any]], newest_ns: int | None) -> list[dict[str, Any]]:
    """Return the records, each with its time in microseconds relative to the newest record. None if it has no time."""
    times = (each["since_start_ns"] for each in records)
    return [
        wording.with_step(each) | {"at_us": None if time is None or newest_ns is None else (time - newest_ns) / 1_000}
        for each, time in zip(records, times, strict=True)
    ]


def _sites(sites: list[dict[str, Any]], room: int) -> str:
    off = sorted({site["brick"] for site in sites if site["off"]})
    line = f"sites     {len(sites)} of {room}"
    return f"{line}  off without BRICKD_SENSITIVE=1: {', '.join(map(escaped, off))}" if off else line


def _event_ledger(events: dict[str, Any]) -> str:
    terms = {term.replace("_", " "): n for term, n in events.items() if term != "dropped"}
    terms |= {f"{kind} dropped": n for kind, n in events["dropped"].items()}
    return "  ".join(f"{term} {units.count(n)}" for term, n in terms.items() if n)


def _event(event: dict[str, Any]) -> dict[str, Any]:
    layer = "" if event["brick"] is None else wording.identifier(event["layer"])
    stream = "every" if event["every_stream"] else _if_known(_short)(event["stream"])
    return event | {"layer": layer, "stream": stream}


def _checksum(event: dict[str, Any]) -> dict[str, Any]:
    checked: dict[str, Any] = event["checked"]
    return event | checked | {name: checked["output"][name] for name in ("dtype", "checksum")}
