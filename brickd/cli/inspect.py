"""The verb `inspect`.

Owns: the human screen of one segment. Must not know: how a segment is read. Invariant: what the segment says is shown
as it is, escaped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click

from brickd.base import units
from brickd.base.escape import text as escaped
from brickd.cli import table as tables
from brickd.cli import wording
from brickd.cli.ask import asked
from brickd.cli.output import Screen, emit, output_options
from brickd.cli.query_options import asks
from brickd.cli.shell_completion import complete_segments
from brickd.cli.table import Column
from brickd.query.queries import InspectQuery
from brickd.shm.sampling import DEFAULT

_LANE_COLUMNS = (
    Column("LANE"),
    Column("THREAD", "right"),
    Column("THREADS EVER", "right"),
    Column("BEGUN", "right"),
    Column("SUMMARIZED", "right"),
    Column("OPEN", "right"),
    Column("ABANDONED", "right"),
    Column("REJECTED", "right"),
    Column("IN RINGS EVER", "right"),
    Column("DROPPED", "right"),
)
_SPAN_COLUMNS = (
    Column("#", "right"),
    Column("BRICK"),
    Column("LAYER", "right"),
    Column("AT", "right"),
    Column("DURATION", "right"),
    Column("ELEMENTS", "right"),
    Column("STEP"),
)
_EVENT_COLUMNS = (
    Column("#", "right"),
    Column("EVENT"),
    Column("BRICK"),
    Column("LAYER", "right"),
    Column("AT", "right"),
    Column("DURATION", "right"),
    Column("ELEMENTS", "right"),
    Column("STREAM", "right"),
    Column("ID", "right"),
    Column("STEP"),
)
_CHECKSUM_COLUMNS = (
    Column("#", "right"),
    Column("KERNEL"),
    Column("LAYER", "right"),
    Column("AT", "right"),
    Column("STEP"),
    Column("POSITION", "right"),
    Column("DTYPE"),
    Column("SHAPE"),
    Column("CHECKSUM"),
    Column("INPUTS", "right"),
)


@click.command()
@asks(InspectQuery, complete_segments)
@output_options
def inspect(question: InspectQuery, recordings: Sequence[str], output: str) -> None:
    """Show one segment in full: header, lanes, ledger, rings.

    Name a segment by its worker or by its file name. Shows the newest records of each ring. With a daemon, it also
    shows the newest spans that the daemon drained, and the longest span of each place.
    """
    document = asked("inspect", question, recordings=recordings)
    emit(document, output, table=lambda screen: _render(document, screen), rows="lanes")


def _thinned(document: dict[str, Any]) -> str:
    """Of which steps and sites checksums are recorded, where anybody said so."""
    control, configured = document["control"], document["configured"]["fingerprints"]
    said = f", fingerprints {control['fingerprints']}" if control["fingerprints"] != DEFAULT else ""
    started = f", started with fingerprints {configured}" if configured != DEFAULT else ""
    return f"{said}{', some sites left out' if control['filtered'] else ''}{started}"


def _render(document: dict[str, Any], screen: Screen) -> list[str]:
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
    if told := _event_ledger(document["ledger"]["events"]):
        lines.append("events    " + told)
    if (marks := document["ledger"]["marks"])["wanted"]:
        lines.append("marks     " + "  ".join(f"{term} {units.count(n)}" for term, n in marks.items() if n))
    refused = {term: n for term, n in process.items() if n and term not in ("names", "paths", "sites", "key")}
    if refused:
        lines.append("counted   " + "  ".join(f"{term} {units.count(n)}" for term, n in refused.items()))
    rows = [
        (
            str(lane["number"]),
            str(lane["thread"] or "free"),
            *(units.count(lane[term]) for term in ("opened", "begun", "summarized", "open", "abandoned")),
            units.count(sum(lane["rejected"])),
            units.count(lane["span_head"] + lane["event_records"]),
            units.count(sum(lane["span_dropped"]) + sum(lane["event_dropped"])),
        )
        for lane in document["lanes"]
    ]
    lines += tables.lines(_LANE_COLUMNS, rows, screen.width)
    for lane in document["lanes"]:
        if lane["spans"]:
            lines.append(f"span ring of lane {lane['number']}, newest last:")
            lines += _spans(lane["spans"], screen)
        checked = [event for event in lane["events"] if event["checked"] is not None]
        if len(checked) < len(lane["events"]):
            lines.append(f"event ring of lane {lane['number']}, newest last:")
            lines += _events([event for event in lane["events"] if event["checked"] is None], screen)
        if checked:
            lines.append(f"checksums in the event ring of lane {lane['number']}, newest last:")
            lines += _checksums(checked, screen)
    if document["taken"] is not None:
        for title, key in (("newest last", "newest"), ("the longest of each place", "longest")):
            if document["taken"][key]:
                lines.append(f"taken from the span rings by the daemon, {title}:")
                lines += _spans(document["taken"][key], screen)
    return lines


def _sites(sites: list[dict[str, Any]], room: int) -> str:
    off = sorted({site["brick"] for site in sites if site["off"]})
    told = f"sites     {len(sites)} of {room}"
    return f"{told}  off without BRICKD_SENSITIVE=1: {', '.join(map(escaped, off))}" if off else told


def _event_ledger(events: dict[str, Any]) -> str:
    terms = {term.replace("_", " "): n for term, n in events.items() if term != "dropped"}
    terms |= {f"{kind} dropped": n for kind, n in events["dropped"].items()}
    return "  ".join(f"{term} {units.count(n)}" for term, n in terms.items() if n)


def _spans(spans: list[dict[str, Any]], screen: Screen) -> list[str]:
    rows = [
        (
            str(span.get("sequence", "")),
            span["brick"],
            wording.identifier(span["layer"]),
            units.duration(span["since_start_ns"]),
            units.duration(span["duration_ns"]),
            units.count(span["elements"]),
            span["step"] or "",
        )
        for span in spans
    ]
    return tables.lines(_SPAN_COLUMNS, rows, screen.width)


def _events(events: list[dict[str, Any]], screen: Screen) -> list[str]:
    rows = [
        (
            str(event["sequence"]),
            event["kind"],
            event["brick"] or "",
            wording.identifier(event["layer"]) if event["brick"] is not None else "",
            _unless_none(event["since_start_ns"], units.duration),
            _unless_none(event["duration_ns"], units.duration),
            _unless_none(event["elements"], units.count),
            "every" if event["every_stream"] else _short(event["stream"]),
            _short(event["id"]),
            event["step"] or "",
        )
        for event in events
    ]
    return tables.lines(_EVENT_COLUMNS, rows, screen.width)


def _checksums(events: list[dict[str, Any]], screen: Screen) -> list[str]:
    rows = [
        (
            str(event["sequence"]),
            event["brick"],
            wording.identifier(event["layer"]),
            units.duration(event["since_start_ns"]),
            event["step"] or "",
            str(event["checked"]["position"]),
            event["checked"]["output"]["dtype"] or "",
            "x".join(map(str, event["checked"]["shape"])) or "-",
            event["checked"]["output"]["checksum"],
            str(len(event["checked"]["inputs"])),
        )
        for event in events
    ]
    return tables.lines(_CHECKSUM_COLUMNS, rows, screen.width)


def _unless_none(number: int | None, write: Callable[[int], str]) -> str:
    return "" if number is None else write(number)


def _short(hexadecimal: str | None) -> str:
    """A 64-bit number that is most often small, as a cell."""
    return "" if hexadecimal is None else hexadecimal.lstrip("0") or "0"
