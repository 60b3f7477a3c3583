"""The verb `inspect`.

Owns: one segment in full: header, tables, lanes with their ledgers, what the rings still hold. Must not know: how a
segment is read. Invariant: what the segment says is shown as it is, escaped, and nothing of it is judged again.
"""

from __future__ import annotations

from typing import Any

import click

from brickd import _reader, records, units
from brickd.cli import phrases
from brickd.cli import table as tables
from brickd.cli.output import Screen, emit, output_options
from brickd.cli.selection import NOBODY, require_readable
from brickd.cli.tab import complete_segments
from brickd.cli.table import Column
from brickd.errors import BrickdError, NoSuchWorker
from brickd.escape import text as escaped
from brickd.ledger import ledger_of
from brickd.segment import Reading, Segment, find, open_segment
from brickd.workers import Worker, select, survey

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
@click.argument("name", required=False, metavar="[WORKER|SEGMENT]", shell_complete=complete_segments)
@click.option("-n", "--records", "most", type=click.IntRange(0, 100_000), default=10, show_default=True,
              help="How many of the newest records of each ring to show.")  # fmt: skip
@output_options
def inspect(name: str | None, most: int, output: str) -> None:
    """What one segment holds: header, lanes, ledger, rings."""
    file, worker = _chosen(name)
    with open_segment(file) as segment:
        document = _document(segment, worker, most)
    emit(document, output, table=lambda screen: _render(document, screen), rows="lanes")


def _chosen(name: str | None) -> tuple[str, str | None]:
    """The segment's file and its worker's name."""
    if name is not None and name in find(""):
        named = {worker.reading.file: worker.name for worker in survey().workers}
        return name, named.get(name)
    found = survey()
    if name is not None:
        chosen: list[Worker] = select(found.workers, [name], segments=find(), foreign=found.foreign)
    elif found.workers:
        chosen = found.workers
    else:
        require_readable(found)
        raise NoSuchWorker(NOBODY)
    if len(chosen) > 1:
        names = ", ".join(worker.name for worker in chosen[:8])
        raise BrickdError(f"{len(chosen)} workers to choose from, one wanted: brickd inspect WORKER ({names})")
    return chosen[0].reading.file, chosen[0].name


def _document(segment: Segment, worker: str | None, most: int) -> dict[str, Any]:
    reading = segment.read()
    header = dict(reading.header)
    header |= {
        "uuid": reading.uuid,
        "boot_id": reading.header["boot_id"].hex(),
        "magic": f"{reading.header['magic']:016x}",
        "layout_crc": f"{header['layout_crc']:08x}",
        "header_crc": f"{header['header_crc']:08x}",
        "service": reading.service,
        "coordinates": reading.coordinates,
        "clock": reading.clock,
    }
    control = segment.control()
    return {
        "schema_version": 1,
        "segment": reading.file,
        "worker": worker,
        "state": "live" if reading.alive else "dead",
        "pid": reading.pid or reading.header["pid"],
        "consumer_pid": segment.consumer(),
        "tick_ns": reading.tick_ns,
        "header": header,
        "process": dict(reading.process),
        "control": {"flags": control["flags"], "fingerprint_rate": control["fingerprint_rate"]},
        "summaries": {"left_open": reading.odd, "changing": reading.moving},
        "ledger": ledger_of(reading).document(),
        "lanes": [_lane(segment, reading, number, lane, most) for number, lane, _ in reading.lanes],
    }


def _lane(segment: Segment, reading: Reading, number: int, lane: Any, most: int) -> dict[str, Any]:
    first, slots = segment.ring(number, events=False)
    spans, others = records.spans(slots)
    _, events = segment.ring(number, events=True)
    _, kinds = records.spans(events)
    counters = {name: list(value) if isinstance(value, tuple) else value for name, value in lane.items()}
    return {
        "number": number,
        **counters,
        "first_in_span_ring": first,
        "other_records": dict(others + kinds),
        "spans": [_span(reading, span) for span in spans[len(spans) - min(most, len(spans)) :]],
    }


def _span(reading: Reading, span: dict[str, Any]) -> dict[str, Any]:
    path = reading.paths[span["path"]] if span["path"] < len(reading.paths) else None
    began = (span["start"] - reading.header["anchor_ticks"]) * reading.tick_ns
    given = path is not None and path.unit == _reader.UNIT_NS
    is_step = span["kind"] == _reader.KIND_STEP
    return {
        "sequence": span["sequence"],
        "kind": "step" if is_step else "given" if given else "span",
        "brick": reading.name(path.name) if path is not None else f"path#{span['path']}",
        "layer": path.layer if path is not None and path.layer >= 0 else None,
        "since_start_ns": round(began),
        "duration_ns": span["duration"] if given else round(span["duration"] * reading.tick_ns),
        "step": f"{span['step']:016x}" if span["step"] else None,
        "elements": span["bytes"] if is_step else span["elements"],
        "bytes": 0 if is_step else span["bytes"],
        "rows": span["elements"] if is_step else None,
    }


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
