"""The verb `inspect`.

Owns: the human screen of one segment. Must not know: how a segment is read. Invariant: what the segment says is shown
as it is, escaped.
"""

from __future__ import annotations

from typing import Any

import click

from brickd import units
from brickd.cli import phrases
from brickd.cli import table as tables
from brickd.cli.asking import asked, asks
from brickd.cli.output import Screen, emit, output_options
from brickd.cli.tab import complete_segments
from brickd.cli.table import Column
from brickd.escape import text as escaped
from brickd.views import inspect as view

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


@click.command()
@asks(view.InspectQuestion, complete_segments)
@output_options
def inspect(question: view.InspectQuestion, output: str) -> None:
    """What one segment holds: header, lanes, ledger, rings."""
    document = asked(view.answer, question)
    emit(document, output, table=lambda screen: _render(document, screen), rows="lanes")


def _render(document: dict[str, Any], screen: Screen) -> list[str]:
    header, process, spans = document["header"], document["process"], document["ledger"]["spans"]
    lines = [
        f"segment   {escaped(document['segment'])}  format {header['major']}.{header['minor']}"
        f"  {units.size(header['size'])} reserved",
        f"worker    {escaped(document['worker'] or '-')}  pid {document['pid']}  {document['state']}"
        f"  uuid {header['uuid']}",
        f"clock     {header['clock']}  {document['tick_ns']:.6f} ns a tick",
        f"room      {units.many(header['lanes'], 'lane')}, {process['paths']} of {header['paths']} paths,"
        f" {process['names']} of {header['names']} names, {header['span_slots']} slots a span ring",
        f"consumer  {'pid ' + str(document['consumer_pid']) if document['consumer_pid'] is not None else 'none'}"
        f"  control flags {document['control']['flags']:#x}",
        "ledger    " + "  ".join(f"{term} {units.count(n)}" for term, n in spans.items() if n or term == "begun"),
    ]
    refused = {term: n for term, n in process.items() if n and term not in ("names", "paths", "sites")}
    if refused:
        lines.append("counted   " + "  ".join(f"{term} {units.count(n)}" for term, n in refused.items()))
    rows = [
        (
            str(lane["number"]),
            str(lane["thread"] or "free"),
            *(units.count(lane[term]) for term in ("opened", "begun", "summarized", "open", "abandoned")),
            units.count(sum(lane["rejected"])),
            units.count(lane["span_head"]),
            units.count(sum(lane["span_dropped"])),
        )
        for lane in document["lanes"]
    ]
    lines += tables.lines(_LANE_COLUMNS, rows, screen.width)
    for lane in document["lanes"]:
        if lane["spans"]:
            lines.append(f"span ring of lane {lane['number']}, newest last:")
            lines += _spans(lane["spans"], screen)
    return lines


def _spans(spans: list[dict[str, Any]], screen: Screen) -> list[str]:
    rows = [
        (
            str(span["sequence"]),
            span["brick"],
            phrases.identifier(span["layer"]),
            units.duration(span["since_start_ns"]),
            units.duration(span["duration_ns"]),
            units.count(span["elements"]),
            span["step"] or "",
        )
        for span in spans
    ]
    return tables.lines(_SPAN_COLUMNS, rows, screen.width)
