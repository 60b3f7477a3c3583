"""Traces of Perfetto: on each track, spans nest, and reading a trace gives the spans back."""

from __future__ import annotations

import itertools
from bisect import insort
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import protobuf_reader as protobuf
import pytest
import span_recordings as made
from hypothesis import example, given
from hypothesis import strategies as st
from span_recordings import BEGAN_NS, HOSTILE, INNER, OUTER, chunk, opened, recording, spans

from brickd.export.formats import export
from brickd.export.span_rows import ROW
from brickd.model.event_log import Event
from brickd.model.workers import Usage
from brickd.recording import body_codec
from brickd.shm import _reader
from brickd.shm.segment_copy import CallPath

Slice = tuple[int, int, str]  # begin, end, name


@dataclass
class Track:
    """A track of a trace; `depths`: how deep each slice is."""

    name: str
    parent: int
    slices: list[Slice] = field(default_factory=list)
    instants: list[tuple[int, str]] = field(default_factory=list)
    counts: list[tuple[int, Any]] = field(default_factory=list)
    annotations: list[dict[str, Any]] = field(default_factory=list)
    fields: protobuf.Message = field(default_factory=dict)


@dataclass
class Sequence:
    track: int
    clock: int
    names: dict[int, str] = field(default_factory=dict)
    categories: dict[int, str] = field(default_factory=dict)
    keys: dict[int, str] = field(default_factory=dict)


def read(content: bytes) -> tuple[dict[int, Track], protobuf.Message | None]:
    """Read a trace as its viewer does: packets in the order of time, and at the same time in the order of the file."""
    tracks: dict[int, Track] = {}
    sequences: dict[int, Sequence] = {}
    clocks = None
    events: list[tuple[int, int, int, protobuf.Message, Sequence]] = []
    for order, packet in enumerate(protobuf.message(content)[1]):
        each = protobuf.message(packet)
        if each[6]:
            clocks = protobuf.message(each[6][0])
            continue
        (number,) = each[10]
        if each[59]:
            assert each[13] == [1]
            defaults = protobuf.message(each[59][0])
            sequences[number] = Sequence(protobuf.message(defaults[11][0])[11][0], defaults[58][0])
        sequence = sequences[number]
        if each[12]:
            interned = protobuf.message(each[12][0])
            for of, known in ((1, sequence.categories), (2, sequence.names), (3, sequence.keys)):
                known.update({one[1][0]: one[2][0].decode() for one in map(protobuf.message, interned[of])})
        if each[60]:
            described = protobuf.message(each[60][0])
            named = described[2] or [protobuf.message(described[4][0])[5][0]]
            tracks[described[1][0]] = Track(named[0].decode(), (described[5] or [0])[0], fields=described)
        if each[11]:
            assert each[13] == [2]
            insort(
                events, (each[8][0], order, number, protobuf.message(each[11][0]), sequence), key=lambda one: one[:2]
            )
    stacks: dict[int, list[tuple[int, str, dict[str, Any]]]] = defaultdict(list)
    for time, _, _, event, sequence in events:
        assert sequence.clock == 5
        track = tracks[sequence.track]
        name = event[23][0].decode() if event[23] else sequence.names[event[10][0]] if event[10] else ""
        match event[9][0]:
            case 1:
                assert all(category in sequence.categories for category in event[3])
                stacks[sequence.track].append((time, name, annotated(event, sequence)))
            case 2:
                begin, opened_name, more = stacks[sequence.track].pop()
                track.slices.append((begin, time, opened_name))
                track.annotations.append(more)
            case 3:
                track.instants.append((time, name))
            case 4:
                track.counts.append((time, (event[30] or event[44])[0]))
    assert not any(stacks.values())
    return tracks, clocks


def annotated(event: protobuf.Message, sequence: Sequence) -> dict[str, Any]:
    """Return the annotations of an event, keyed by name."""
    found = {}
    for one in map(protobuf.message, event[4]):
        key = sequence.keys[one[1][0]]
        found[key] = next(values[0] for number, values in one.items() if number != 1)
    return found


def trace(folder: Path, *contents: bytes, **filters: Any) -> tuple[dict[int, Track], protobuf.Message | None]:
    file = folder / "out.pftrace"
    with opened(folder, *contents) as forms:
        export(forms, "perfetto", str(file), **filters)
    return read(file.read_bytes())


def by_name(tracks: dict[int, Track]) -> dict[str, Track]:
    return {each.name: each for each in tracks.values()}


def test_a_trace_has_a_process_for_each_worker_and_a_track_for_each_thread(tmp_path: Path) -> None:
    workers = [made.worker("api/0", 1), made.worker("api/1", 2)]
    array = spans((INNER, 20, 10), (OUTER, 10, 50))
    array["step"][0], array["elements"][0], array["bytes"][0] = 17, 3, 4
    run = recording(chunk(array), chunk(spans((OUTER, 7, 1)), number=2, lane=3), workers=workers)
    tracks, clocks = trace(tmp_path, run)
    assert [(each.name, each.parent != 0) for each in tracks.values()] == [
        ("api/0", False), ("api/1", False), ("lane 0", True), ("lane 3", True),
    ]  # fmt: skip
    found = by_name(tracks)
    assert found["lane 0"].slices == [(20, 30, "inner"), (10, 60, "outer")]
    assert found["lane 0"].annotations == [{"layer": 3, "step": 17, "elements": 3, "bytes": 4}, {}]
    assert tracks[found["lane 3"].parent].name == "api/1"
    assert found["lane 3"].slices == [(7, 8, "outer")]
    process = protobuf.message(found["api/0"].fields[3][0])
    thread = protobuf.message(found["lane 0"].fields[4][0])
    assert (process[1], thread[1], thread[2]) == ([71], [71], [4242])
    assert clocks is not None
    times = {one[1][0]: one[2][0] for one in map(protobuf.message, clocks[1])}
    assert (times, clocks[2]) == ({5: 1000, 1: BEGAN_NS, 3: 1000}, [5])


def test_interleaved_tasks_are_on_sub_tracks_of_their_lane(tmp_path: Path) -> None:
    run = recording(chunk(spans((INNER, 2, 2), (INNER, 6, 2), (OUTER, 0, 10), (OUTER, 5, 10))))
    tracks, _ = trace(tmp_path, run)
    found = by_name(tracks)
    assert found["lane 0"].slices == [(2, 4, "inner"), (6, 8, "inner"), (0, 10, "outer")]
    assert found["lane 0, overlapping 1"].slices == [(5, 15, "outer")]
    assert tracks[found["lane 0, overlapping 1"].parent].name == "lane 0"


def test_steps_events_and_usage_have_tracks_of_their_own(tmp_path: Path) -> None:
    worker = made.worker()._replace(usage=Usage(12.5, 4096))
    array = spans((OUTER, 10, 50), elements=9, bytes=2, step=17, kind=_reader.KIND_STEP)
    events = [
        Event(1, BEGAN_NS + 5, "worker_died", "api/0 died\x1b", "api", "api/0"),
        Event(2, BEGAN_NS + 6, "daemon_started", "started"),
    ]
    chunks = [(_reader.CHUNK_EVENTS, BEGAN_NS, body_codec.event(each)) for each in events]
    tracks, _ = trace(tmp_path, recording(chunk(array), *chunks, workers=[worker]))
    found = by_name(tracks)
    assert found["steps"].instants == [(10, "step 17")]
    assert found["lane 0"].annotations == [{"step": 17, "elements": 2, "rows": 9}]
    events_on = [each for each in tracks.values() if each.name == "brickd events"]
    shown = [(tracks[each.parent].name if each.parent else "", *each.instants) for each in events_on]
    assert shown == [("api/0", (1005, "worker_died")), ("", (1006, "daemon_started"))]
    assert (found["resident memory"].counts, found["cpu"].counts) == ([(1000, 4096)], [(1000, 12.5)])


def test_streams_have_tracks_and_losses_are_shown(tmp_path: Path) -> None:
    import rings

    start = rings.events({"path": made.DEVICE, "start": 100, "stream": 7, "id": 1, "sequence": 1})
    end = rings.events({"id": 1, "elapsed_ns": 50, "sequence": 2}, record="measured")
    run = recording(
        chunk(start, events=True),
        chunk(end, events=True),
        chunk(spans((OUTER, 1, 1))),
        chunk(spans((OUTER, 3, 1), sequence=4)),
    )
    tracks, _ = trace(tmp_path, run)
    found = by_name(tracks)
    assert found["stream 7"].slices == [(100, 150, "gpu")]
    assert found["lane 0"].annotations[1] == {"lost_records": 2}
    assert found["missing"].instants[0][1].startswith("2 records lost")


def test_workers_with_one_pid_are_two_processes(tmp_path: Path) -> None:
    one, other = made.worker("api/0", 1), made.worker("api/1", 2)
    other.reading.header["pid"] = one.reading.header["pid"]
    tracks, _ = trace(tmp_path, recording(workers=[one, other]))
    pids = [protobuf.message(each.fields[3][0])[1][0] for each in tracks.values()]
    assert pids[0] == 71
    assert len(set(pids)) == 2


def test_hostile_names_are_valid_and_visible(tmp_path: Path) -> None:
    worker = made.worker(f"{HOSTILE}/0", names=[(HOSTILE, 0)], paths=[CallPath(-1, 0, -1, 0)])
    tracks, _ = trace(tmp_path, recording(chunk(spans((0, 5, 5), (99, 6, 9))), workers=[worker]))
    names = {each.name for each in tracks.values()} | {one[2] for each in tracks.values() for one in each.slices}
    assert "[unknown]" in names
    assert all(name.isprintable() for name in names)


# ---- colouring


@st.composite
def lanes(draw: st.DrawFn) -> list[list[tuple[int, int]]]:
    """Draw the spans of interleaved tasks as a lane records them (in the order of their ends), divided into chunks."""
    ends = st.integers(0, 30)
    found = [
        (begin, begin + length) for begin, length in draw(st.lists(st.tuples(ends, st.integers(0, 12)), max_size=40))
    ]
    if draw(st.booleans()):
        found.sort(key=lambda span: span[1])
    cuts = sorted(draw(st.lists(st.integers(0, len(found)), max_size=4)))
    return [found[a:b] for a, b in zip([0, *cuts], [*cuts, len(found)], strict=True)]


def placed(chunks: list[list[tuple[int, int]]]) -> tuple[_reader.SpanTracks, list[bytearray]]:
    """Put the spans on tracks. The spans are numbered from 1, and `elements` of a span is its number."""
    tracks, batches, numbers = _reader.SpanTracks(), [], itertools.count(1)
    for spans_ in chunks:
        rows = bytearray()
        for begin, end in spans_:
            rows += ROW.pack(begin, end - begin, 0, 0, next(numbers), 0, 0, 0, 0, 0, 0)
        tracks.place(rows)
        batches.append(rows)
    return tracks, batches


@given(lanes())
def test_on_each_track_spans_nest(chunks: list[list[tuple[int, int]]]) -> None:
    _, batches = placed(chunks)
    on: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for rows in batches:
        for row in ROW.iter_unpack(rows):
            on[row[-1]].append((row[0], row[0] + row[1]))
    assert sorted(span for each in on.values() for span in each) == sorted(span for each in chunks for span in each)
    for spans_ in on.values():
        for a in spans_:
            for b in spans_:
                assert not a[0] < b[0] < a[1] < b[1], (a, b)


_SEQUENCES = b"".join(number.to_bytes(4, "little") for number in range(1, 100))


@given(lanes())
@example([[(5, 8)], [(5, 10)]])  # the inner span is already in the file when the outer one comes
def test_a_viewer_reads_the_same_spans_back(chunks: list[list[tuple[int, int]]]) -> None:
    """This is also true if spans begin or end at the same time."""
    tracks, batches = placed(chunks)
    found, stacks = [], defaultdict(list)
    events = []
    for rows in batches:
        into = bytearray(1 << 16)
        done, used, untracked = tracks.events(rows, b"", bytes(8), b"", bytes(8), _SEQUENCES, 0, into)
        assert (done, untracked) == (len(rows) // ROW.size, 0)
        for packet in protobuf.message(bytes(into[:used]))[1]:
            each = protobuf.message(packet)
            events.append((each[8][0], each[10][0], protobuf.message(each[11][0])))
    for time, sequence, event in sorted(events, key=lambda one: one[0]):
        if event[9] == [1]:
            stacks[sequence].append((time, protobuf.message(event[4][0])[3][0]))
        else:
            begin, number = stacks[sequence].pop()
            found.append((number, (begin, time)))
    assert sorted(found) == list(enumerate((span for each in chunks for span in each), 1))


def test_a_synchronous_lane_needs_one_track() -> None:
    chunks = [[(n * 10 + 1, n * 10 + 4), (n * 10 + 5, n * 10 + 9), (n * 10, n * 10 + 9)] for n in range(1, 6000)]
    _, batches = placed([*chunks, [(0, 70_000)]])
    assert {row[-1] for rows in batches for row in ROW.iter_unpack(rows)} == {0}
    _, batches = placed([[(1, 3), (4, 5)], [(0, 6), (7, 8), (7, 9)]])
    assert {row[-1] for rows in batches for row in ROW.iter_unpack(rows)} == {0}


def test_a_span_that_begins_within_a_merged_span_is_on_another_track() -> None:
    before = [(10 * n, 10 * n + 9) for n in range(1, 10_000)]
    _, (*_, last) = placed([before, [(25, 200_000)]])
    assert [row[-1] for row in ROW.iter_unpack(last)] == [1]


def test_a_track_interns_a_name_once_and_no_time_is_negative() -> None:
    tracks, (rows,) = placed([[(-5, 1), (2, 3), (4, 5)]])
    into = bytearray(1 << 16)
    name = b"N", b"\0\0\0\0\1\0\0\0"
    _, used, _ = tracks.events(rows, *name, b"", bytes(8), _SEQUENCES, 0, into)
    packets = [protobuf.message(packet) for packet in protobuf.message(bytes(into[:used]))[1]]
    assert [each[8][0] for each in packets] == [0, 1, 2, 3, 4, 5]
    assert [12 in each for each in packets] == [True, False, False, False, False, False]


def test_more_overlapping_spans_than_tracks_are_counted() -> None:
    tracks, (rows,) = placed([[(n, 5000 + n) for n in range(1030)]])
    *_, untracked = tracks.events(
        rows, b"", bytes(8), b"N", b"\0\0\0\0\1\0\0\0", bytes(4 * 1024), 0, bytearray(1 << 20)
    )
    assert untracked == 6


def test_the_protos_of_perfetto_read_a_trace(tmp_path: Path) -> None:
    package = "perfetto.protos.perfetto.trace.perfetto_trace_pb2"
    protos: Any = pytest.importorskip(package, reason="the package perfetto is not installed")
    trace(tmp_path, recording(chunk(spans((INNER, 20, 10), (OUTER, 10, 50)))))
    whole = protos.Trace()
    whole.ParseFromString((tmp_path / "out.pftrace").read_bytes())
    types = [each.track_event.type for each in whole.packet if each.HasField("track_event")]
    assert types == [1, 2, 1, 2]
    assert whole.packet[0].clock_snapshot.primary_trace_clock == 5
