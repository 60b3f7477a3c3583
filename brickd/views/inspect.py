"""The view `inspect`: one segment in full.

Owns: the segment's header, tables, lanes with their ledgers, the records in its rings. Must not know: how a segment is
opened, screens. Invariant: the values in the segment are shown unchanged, without a verdict.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from brickd.base.units import or_none
from brickd.datasources.world import Details, SegmentInside, World
from brickd.errors import BrickdError, NoSuchWorker
from brickd.model.step_texts import StepTexts
from brickd.model.workers import select
from brickd.query.orders import settings
from brickd.query.queries import InspectQuery
from brickd.shm import _reader, records
from brickd.shm.ledger import ledger_of
from brickd.shm.sampling import words_of
from brickd.shm.segment_copy import Reading
from brickd.shm.segment_files import prefix
from brickd.views.common import Answer, Document, begun, foreign_words, no_workers


def answer(world: World, query: InspectQuery) -> Answer:
    """Read the segment."""
    file, worker = _chosen(world, query.name)
    daemon = world.daemon()
    with world.segment(file) as segment:
        details = world.details(segment.header["uuid"].hex())
        # A process cannot see its own lock on a file, so the daemon's pid is taken from its status.
        consumer = segment.consumer() if details is None or daemon is None else daemon.pid
        return Answer({**begun(world), **_inside(segment, worker, consumer, details, query.records)})


def _chosen(world: World, name: str | None) -> tuple[str, str | None]:
    """Return the segment's file and its worker's name."""
    files, found = world.files(), world.survey()
    if name is not None and name in files:
        return name, {worker.reading.file: worker.name for worker in found.workers}.get(name)
    if name is not None:
        beginning = prefix()
        near = (file for file in files if file.startswith(beginning))
        workers = select(found.workers, [name], segments=near, foreign=found.foreign)
    elif found.workers:
        workers = found.workers
    else:
        raise NoSuchWorker("; ".join((no_workers(world), *foreign_words(found))))
    if len(workers) > 1:
        names = ", ".join(worker.name for worker in workers[:8])
        raise BrickdError(f"{len(workers)} workers, expected one: brickd inspect WORKER ({names})")
    if workers[0].reading.file not in files:
        text = "has ended and its segment was removed: brickd bricks and brickd tree show its totals"
        raise NoSuchWorker(f"{workers[0].name} {text}")
    return workers[0].reading.file, workers[0].name


def _inside(
    segment: SegmentInside, worker: str | None, consumer: int | None, details: Details | None, most: int
) -> Document:
    reading = segment.read()
    header, control = dict(reading.header), segment.control()
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
    rings = {number: segment.ring(number, events=True, newest=most) for number, _, _ in reading.lanes}
    texts = StepTexts()
    for _, slots in rings.values():
        texts.take(reading.service, _reader.step_texts(slots))
    lanes = [_lane(segment, reading, number, lane, most, rings[number], texts) for number, lane, _ in reading.lanes]
    taken = None if details is None else _taken(reading, details, most, texts)
    return {
        "segment": reading.file,
        "worker": worker,
        "state": "live" if reading.alive else "ended" if reading.ended else "died",
        "pid": reading.pid or reading.header["pid"],
        "consumer_pid": consumer,
        "tick_ns": reading.tick_ns,
        "header": header,
        "process": {**reading.process, "key": f"{reading.process['key']:016x}"},
        "control": {
            "flags": reading.flags,
            **settings(spans=reading.detailed, off=reading.off),
            "fingerprint_rate": control["fingerprint_rate"],
            "fingerprints": words_of(reading.asked_rate),
            "filtered": bool(reading.left_out),
            "epoch": control["epoch"] % 2**32 if control["epoch"] else None,
        },
        "configured": {"fingerprints": words_of(reading.header["rate"])},
        "summaries": {"left_open": reading.odd, "changing": reading.moving},
        "ledger": ledger_of(reading).document(),
        "sites": [_site(reading, number) for number, site in enumerate(reading.sites) if site is not None],
        "newest_since_start_ns": _newest(lanes, taken),
        "lanes": lanes,
        "taken": taken,
    }


def _newest(lanes: Sequence[dict[str, Any]], taken: dict[str, Any] | None) -> int | None:
    """Return the time of the newest record that is shown; None if no record is shown."""
    shown = [record for lane in lanes for ring in ("spans", "events") for record in lane[ring]]
    shown += [record for key in ("newest", "longest") for record in taken[key]] if taken is not None else []
    return max((each["since_start_ns"] for each in shown if each["since_start_ns"] is not None), default=None)


def _taken(reading: Reading, details: Details, most: int, texts: StepTexts) -> dict[str, Any]:
    """Return the newest spans that the daemon drained, and the longest span of each path, sorted by length."""
    newest, _ = records.newest(details.newest, most, records.spans)
    longest = [
        {
            **_place(reading, path),
            "since_start_ns": _since_start(reading, start),
            "duration_ns": _duration(reading, path, duration),
            **texts.members(step or None),
            "elements": elements,
        }
        for path, duration, start, step, elements in details.longest
    ]
    return {
        "newest": [_span(reading, span, texts) for span in newest],
        "longest": sorted(longest, key=lambda span: -int(span["duration_ns"] or 0))[:most],
    }


def _lane(
    segment: SegmentInside,
    reading: Reading,
    number: int,
    lane: Any,
    most: int,
    event_ring: tuple[int, bytes],
    texts: StepTexts,
) -> dict[str, Any]:
    first_span, slots = segment.ring(number, events=False, newest=most)
    spans, strange = records.newest(slots, most, records.spans)
    first_event, slots = event_ring
    events, stranger = records.newest(slots, most, records.events)
    counters = {name: list(value) if isinstance(value, tuple) else value for name, value in lane.items()}
    return {
        "number": number,
        **counters,
        "first_in_span_ring": first_span,
        "first_in_event_ring": first_event,
        "other_records": dict(strange + stranger),
        "spans": [_span(reading, span, texts) for span in spans],
        "events": [_event(reading, event, texts) for event in events],
    }


def _place(reading: Reading, number: int) -> dict[str, Any]:
    path = reading.paths[number] if number < len(reading.paths) else None
    return {
        "brick": reading.name(path.name) if path is not None else f"path#{number}",
        "layer": None if path is None else or_none(path.layer),
    }


def _site(reading: Reading, number: int) -> dict[str, Any]:
    """Return the kernel and the layer of a site, and whether the site is off or excluded by the setting."""
    site = reading.sites[number] if number < len(reading.sites) else None
    left_out = reading.leaves_out(number)
    if site is None:
        return {"brick": f"site#{number}", "layer": None, "off": False, "left_out": left_out}
    layer = or_none(site.layer)
    return {"brick": reading.name(site.name), "layer": layer, "off": site.off, "left_out": left_out}


def _is_given(reading: Reading, number: int) -> bool:
    path = reading.paths[number] if number < len(reading.paths) else None
    return path is not None and path.unit == _reader.UNIT_NS


def _duration(reading: Reading, number: int, duration: int) -> int:
    return duration if _is_given(reading, number) else round(duration * reading.tick_ns)


def _since_start(reading: Reading, ticks: int) -> int:
    return round((ticks - reading.header["anchor_ticks"]) * reading.tick_ns)


def _event(reading: Reading, event: dict[str, Any], texts: StepTexts) -> dict[str, Any]:
    """Return an event. Events of all kinds have the same keys; a value is None if the kind does not have it."""
    kind = event["kind"]
    starts, ends = kind == _reader.KIND_DEFER, kind == _reader.KIND_FINALIZE
    checked = kind == _reader.KIND_CHECKED
    every = ends and event["every"] != 0
    # Events of all other kinds have no step, so step 0 is shown only for a checksum.
    has_step = event.get("step", 0) != 0 or (checked and event["flags"] & _reader.CHECKED_STEP != 0)
    step = event["step"] if has_step else None
    if kind == _reader.KIND_STEP_TEXT:
        step = _reader.source_hash(bytes(event["text"][: event["length"]]))
    place = {"brick": None, "layer": None}
    if starts:
        place = _place(reading, event["path"])
    elif checked:
        site = _site(reading, event["site"])
        place = {"brick": site["brick"], "layer": site["layer"]}
    ticks = event.get("start" if starts else "ticks")
    return {
        "sequence": event["sequence"],
        "kind": records.kind_name(kind),
        **place,
        "since_start_ns": None if ticks is None else _since_start(reading, ticks),
        "stream": f"{event['stream']:016x}" if starts or (ends and not every) else None,
        "every_stream": every if ends else None,
        "id": f"{event['id']:016x}" if "id" in event else None,
        "duration_ns": event.get("elapsed_ns"),
        **texts.members(step),
        "elements": event["tensors"][0]["elements"] if checked else event.get("elements"),
        "bytes": event.get("bytes"),
        "checked": _checked(reading, event) if checked else None,
    }


def _checked(reading: Reading, event: dict[str, Any]) -> dict[str, Any]:
    """Return the values that only checksums have."""
    relation, output = event["relation"], event["output"]
    history = event["flags"] & _reader.CHECKED_HISTORY != 0
    return {
        "position": output["token"] - 1 if history and output["token"] else event["position"],
        "relation": records.RELATIONS[relation] if relation < len(records.RELATIONS) else f"relation_{relation}",
        "of": reading.name(event["of"]) if event["of"] else None,
        "backend": reading.name(event["backend"]) if event["backend"] else None,
        "valid_rows": None if event["valid"] == records.ALL or history else event["valid"],
        "history": f"{event['position']:016x}" if history else None,
        "lineage": f"{event['valid']:016x}" if history else None,
        "params": f"{event['params']:016x}" if event["params"] else None,
        "more_inputs": event["flags"] & _reader.CHECKED_MORE != 0,
        "fnv1a": records.seeds_checksum(output),
        "shape": list(output["shape"][: output["dims"]]),
        "dims": output["dims"],
        "output": records.tensor_document(event["tensors"][0]),
        "inputs": [records.tensor_document(tensor) for tensor in event["tensors"][1:]],
    }


def _span(reading: Reading, span: dict[str, Any], texts: StepTexts) -> dict[str, Any]:
    given = _is_given(reading, span["path"])
    is_step = span["kind"] == _reader.KIND_STEP
    return {
        "sequence": span["sequence"],
        "kind": "step" if is_step else "given" if given else "span",
        **_place(reading, span["path"]),
        "since_start_ns": _since_start(reading, span["start"]),
        "duration_ns": _duration(reading, span["path"], span["duration"]),
        **texts.members(span["step"] or None),
        "elements": span["bytes"] if is_step else span["elements"],
        "bytes": 0 if is_step else span["bytes"],
        "rows": span["elements"] if is_step else None,
    }
