"""The stream of spans that is read from a recording: times, filters, losses."""

from __future__ import annotations

import struct
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import rings
import span_recordings as made
from span_recordings import DEVICE, EPOCH_NS, GIVEN, INNER, OUTER, chunk, opened, recording, spans
from verbs import brickd, document, sheet

from brickd.errors import BrickdError, NoSuchWorker, RecordingRefused
from brickd.export import recorded_workers
from brickd.export.clock_map import ClockReadings, ns_of, packed
from brickd.export.span_rows import KINDS, ROW, SpanBatch
from brickd.export.span_stream import SpanFilter, SpanStream
from brickd.shm import _reader
from brickd.shm.clock import HostClocks, host_clocks


def read(
    folder: Path, *contents: bytes, names: tuple[str, ...] = (), bricks: tuple[str, ...] = (), **wanted: Any
) -> tuple[list[tuple[Any, ...]], SpanStream]:
    """Return (worker, lane or stream, kind, brick, begin, duration, self, lost) of each span, and the stream."""
    with opened(folder, *contents) as forms:
        recorded = recorded_workers.read(forms, names, bricks)
        stream = SpanStream(forms, recorded, SpanFilter(**wanted))
        found = []
        for batch in stream:
            assert isinstance(batch, SpanBatch)
            worker, lane, number = batch.track
            for begin, duration, own, _, _, _, _, path, lost, kind, _ in ROW.iter_unpack(batch.rows):
                at = lane if number is None else f"stream {number}"
                found.append((worker.name, at, KINDS[kind], worker.places[path].brick, begin, duration, own, lost))
        return found, stream


def test_a_span_has_its_times_and_the_time_of_its_children(tmp_path: Path) -> None:
    array = spans((INNER, 20, 10), (OUTER, 10, 50), (GIVEN, 100, 30))
    array["child"][1] = 10
    found, stream = read(tmp_path, recording(chunk(array)))
    assert found == [
        ("api/0", 0, "span", "inner", 20, 10, 10, 0),
        ("api/0", 0, "span", "outer", 10, 50, 40, 0),
        ("api/0", 0, "given", "inner", 70, 30, 30, 0),  # it ended when the program gave it
    ]
    assert (stream.counts.spans, stream.words()) == (3, [])


def test_a_child_longer_than_its_parent_leaves_no_negative_self_time(tmp_path: Path) -> None:
    found, _ = read(tmp_path, recording(chunk(spans((OUTER, 10, 50), child=70))))
    assert [each[5:7] for each in found] == [(50, 0)]


def test_lost_records_are_counted_before_the_next_span_of_their_lane(tmp_path: Path) -> None:
    chunks = [
        chunk(spans((INNER, 1, 1), sequence=5)),
        chunk(spans((INNER, 1, 1), sequence=1), lane=1),
        chunk(spans((INNER, 2, 1), sequence=9)),  # 6, 7 and 8 are lost; the gap crosses two chunks
        chunk(spans((INNER, 2, 1), sequence=2), lane=1),
    ]
    found, stream = read(tmp_path, recording(*chunks))
    assert [each[-1] for each in found] == [0, 0, 3, 0]
    assert stream.counts.lost == 3
    assert stream.words() == ["3 records lost: a ring or the file was full, or the data is damaged"]


def test_a_loss_counts_for_the_next_span_that_passes_the_filter_and_once(tmp_path: Path) -> None:
    chunks = [
        chunk(spans((INNER, 1, 1), sequence=1)),
        chunk(spans((OUTER, 2, 1), sequence=4)),
        chunk(spans((INNER, 3, 1), (INNER, 4, 1), sequence=6)),
    ]
    found, stream = read(tmp_path, recording(*chunks), bricks=("inner",))
    assert [each[-1] for each in found] == [0, 3, 0]
    assert stream.counts.lost == 3


def test_a_damaged_chunk_is_reported_and_its_spans_count_as_lost(tmp_path: Path) -> None:
    content = bytearray(recording(*(chunk(spans((INNER, n, 1), sequence=n)) for n in (1, 2, 3))))
    at = content.index(spans((INNER, 2, 1), sequence=2).tobytes())
    content[at + 40] ^= 1
    found, stream = read(tmp_path, bytes(content))
    assert [each[4] for each in found] == [1, 3]
    assert stream.counts.lost == 1
    assert "wrong checksum" in stream.words()[0]


@pytest.mark.parametrize(
    "changes",
    [
        {"start": 1 << 63},
        {"duration": 1 << 63},
        {"start": (1 << 63) - 1, "duration": 2},
        {"child": 1 << 63},
        {"elements": 1 << 63},
        {"bytes": 1 << 63},
        {"sequence": 1},
        {"kind": 2, "elements": 1, "bytes": 2},
        {"slots": 2},
    ],
)
def test_an_impossible_record_is_counted_and_the_others_are_read(tmp_path: Path, changes: dict[str, int]) -> None:
    array = spans((INNER, 1, 1), (INNER, 2, 1), (INNER, 3, 1), (INNER, 4, 1))
    for name, value in changes.items():
        array[name][1] = value
    found, stream = read(tmp_path, recording(chunk(array)))
    assert stream.counts.rejected == 1
    assert [each[4] for each in found] == ([1, 4] if "slots" in changes else [1, 3, 4])


def test_a_record_without_slots_ends_its_chunk_only(tmp_path: Path) -> None:
    broken = spans((INNER, 1, 1), (INNER, 2, 1))
    broken["slots"][0] = 0
    found, stream = read(tmp_path, recording(chunk(broken), chunk(spans((INNER, 9, 1), sequence=3))))
    assert ([each[4] for each in found], stream.counts.rejected) == ([9], 1)


def test_a_path_of_no_snapshot_gives_a_span_without_a_brick(tmp_path: Path) -> None:
    found, _ = read(tmp_path, recording(chunk(spans((77, 1, 1), (0xFFFFFFFF, 2, 1)))))
    assert [each[3] for each in found] == [None, None]
    found, _ = read(tmp_path, recording(chunk(spans((77, 1, 1)))), bricks=("inner",))
    assert found == []


def test_filters_choose_workers_bricks_steps_and_durations(tmp_path: Path) -> None:
    workers = [made.worker("api/0", 1), made.worker("web/0", 2)]
    array = spans((INNER, 1, 4), (OUTER, 2, 5), (INNER, 3, 6))
    array["step"] = [7, 7, 8]
    content = recording(chunk(array), chunk(array, number=2), workers=workers)
    assert len(read(tmp_path, content)[0]) == 6
    assert {each[0] for each in read(tmp_path, content, names=("web",))[0]} == {"web/0"}
    assert [each[4] for each in read(tmp_path, content, names=("api/0",), bricks=("inner",))[0]] == [1, 3]
    assert [each[4] for each in read(tmp_path, content, names=("api/0",), step=7)[0]] == [1, 2]
    assert [each[4] for each in read(tmp_path, content, names=("api/0",), step=0)[0]] == []
    assert [each[5] for each in read(tmp_path, content, names=("api/0",), longer_ns=5)[0]] == [5, 6]
    with pytest.raises(NoSuchWorker, match="did you mean api/0"):
        read(tmp_path, content, names=("apo/0",))
    with pytest.raises(NoSuchWorker, match=r"^/ is a directory, expected a recording .*: no worker or service /"):
        read(tmp_path, content, names=("/",))
    with pytest.raises(BrickdError, match="no brick iner: did you mean inner"):
        read(tmp_path, content, bricks=("iner",))


def test_the_records_of_a_worker_without_a_description_are_counted(tmp_path: Path) -> None:
    found, stream = read(tmp_path, recording(chunk(spans((INNER, 1, 1), (INNER, 2, 1)), number=9)))
    assert (found, stream.counts.nameless) == ([], 2)
    assert stream.words() == ["2 records left out, because no snapshot names their worker"]


def test_a_recording_without_a_snapshot_is_refused(tmp_path: Path) -> None:
    from tapes import tape

    with pytest.raises(RecordingRefused, match="has no complete snapshot"):
        read(tmp_path, tape([]))


def deferred(*starts: tuple[int, int, int], sequence: int = 1) -> Any:
    """Return starts of deferred work. Each is given as its start, its stream and its id."""
    values = [{"path": DEVICE, "start": start, "stream": stream, "id": id_, "step": 5} for start, stream, id_ in starts]
    array = rings.events(*values)
    array["sequence"] = range(sequence, sequence + len(starts))
    return array


def test_a_start_and_its_end_in_another_chunk_are_one_span_of_the_stream(tmp_path: Path) -> None:
    chunks = [
        chunk(deferred((100, 7, 1), (110, 7, 2), (105, 8, 3)), events=True),
        chunk(rings.events({"id": 1, "elapsed_ns": 50, "sequence": 4}, record="measured"), events=True),
        chunk(rings.events({"id": 2, "elapsed_ns": 20, "sequence": 5}, record="measured"), events=True),
        chunk(rings.events({"ticks": 300, "every": 1, "sequence": 6}, record="finalize"), events=True),
    ]
    found, stream = read(tmp_path, recording(*chunks))
    assert sorted(found, key=lambda each: each[4]) == [
        ("api/0", "stream 7", "measured", "gpu", 100, 50, 50, 0),
        ("api/0", "stream 8", "bounded", "gpu", 105, 195, 195, 0),
        ("api/0", "stream 7", "measured", "gpu", 150, 20, 20, 0),  # a stream does one thing at a time
    ]
    assert stream.counts.waiting == 0
    assert len(read(tmp_path, recording(*chunks), longer_ns=50)[0]) == 2
    assert read(tmp_path, recording(*chunks), bricks=("inner",))[0] == []


def test_deferred_work_without_an_end_is_counted(tmp_path: Path) -> None:
    found, stream = read(tmp_path, recording(chunk(deferred((100, 7, 1)), events=True)))
    assert (found, stream.counts.waiting) == ([], 1)


def test_a_series_of_files_is_one_stream(tmp_path: Path) -> None:
    one, other = recording(chunk(spans((INNER, 1, 1)))), recording(chunk(spans((INNER, 2, 1), sequence=3)))
    found, stream = read(tmp_path, one, other)
    assert ([each[4] for each in found], stream.counts.lost) == ([1, 2], 1)


@pytest.mark.ci
def test_memory_does_not_grow_with_the_recording(tmp_path: Path) -> None:
    def peak(chunks: int) -> int:
        rows = [(INNER, 1, 1)] * 2000
        content = recording(*(chunk(spans(*rows, sequence=1 + 2000 * n)) for n in range(chunks)))
        with opened(tmp_path, content) as forms:
            del content
            recorded = recorded_workers.read(forms)
            tracemalloc.start()
            try:
                batches = (each for each in SpanStream(forms, recorded, SpanFilter()) if isinstance(each, SpanBatch))
                assert sum(len(each.rows) for each in batches) == 2000 * chunks * ROW.size
                return tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()

    assert peak(12) < 1.2 * peak(3)


# ---- clocks


def test_ticks_between_two_pairs_are_interpolated_and_never_decrease() -> None:
    knots = packed([(0, 1000), (1_000, 2_000_001), (2_000, 3_000_000)])
    array = spans(*((INNER, ticks, 0) for ticks in range(0, 3000, 7)))
    into = bytearray(len(array) * ROW.size)
    count, *_ = _reader.span_rows(array.tobytes(), 0, 0, bytes(8), knots, 0, False, 0, into)
    times = [row[0] for row in ROW.iter_unpack(into)]
    assert count == len(times)
    assert times == sorted(times)
    assert times == [ns_of(knots, ticks) for ticks in range(0, 3000, 7)]
    steep = struct.pack("<qqdqqd", 0, 0, 3.0, 10, 20, 1.0)
    _reader.span_rows(
        spans(*((INNER, ticks, 0) for ticks in range(12))).tobytes(), 0, 0, bytes(8), steep, 0, False, 0, into
    )
    times = [row[0] for row in ROW.iter_unpack(into)][:12]
    assert times == [0, 3, 6, 9, 12, 15, 18, 20, 20, 20, 20, 21], "never later than the next pair"


def test_workers_with_different_clocks_have_one_time(tmp_path: Path) -> None:
    """One clock has two ticks per ns; the other clock is CLOCK_MONOTONIC_RAW."""
    second = 1_000_000_000
    tsc, raw = made.worker("api/0", 1), made.worker("api/1", 2)
    tsc.reading.header["clock"] = _reader.CLOCK_TSC
    clocks = [{1: (2 * n * second, n * second), 3: (n * second, n * second)} for n in (1, 5)]
    later = [made.snapshot(tsc, raw, clocks=each) for each in clocks]
    content = recording(
        *later,
        chunk(spans((INNER, 6 * second, 20))),
        chunk(spans((INNER, 3 * second, 10)), number=2),
        workers=[tsc, raw],
    )
    assert [each[4:6] for each in read(tmp_path, content)[0]] == [(3 * second, 10), (3 * second, 10)]


def test_a_step_of_the_wall_clock_moves_no_span(tmp_path: Path) -> None:
    one = made.worker()
    stepped = HostClocks(2000, 5, 2000)
    content = recording(
        chunk(spans((INNER, 1, 1))), made.snapshot(one, host=stepped), chunk(spans((INNER, 9, 1), sequence=2))
    )
    with opened(tmp_path, content) as forms:
        assert recorded_workers.read(forms).epoch_ns == EPOCH_NS


def test_a_worker_in_another_time_namespace_is_shifted(tmp_path: Path) -> None:
    hour = 3_600_000_000_000
    ahead = made.worker(now_ticks=1000 + hour)
    ahead = ahead._replace(reading=replace(ahead.reading, pid=3))
    found, _ = read(tmp_path, recording(chunk(spans((INNER, hour + 7, 1))), workers=[ahead]))
    assert [each[4] for each in found] == [7]


def test_a_worker_without_any_clock_pair_uses_its_own() -> None:
    one = made.worker()
    header: Any = one.reading.header | {"clock": _reader.CLOCK_TSC, "anchor_ticks": 100, "anchor_ns": 50}
    reading = replace(one.reading, header=header, tick_ns=0.5)
    knots = ClockReadings().map_of(reading)
    assert knots is not None
    assert ns_of(knots, 120) == 60
    reading.header["anchor_ns"] = 2**62
    assert ClockReadings().map_of(reading) is None


def test_the_clocks_of_the_host_are_read_together() -> None:
    before, after = host_clocks(), host_clocks()
    assert before.raw_ns <= after.raw_ns
    assert abs((after.unix_ns - before.unix_ns) - (after.raw_ns - before.raw_ns)) < 1_000_000_000


# ---- the verb


@pytest.fixture
def run(tmp_path: Path) -> str:
    """Write a recording with three spans."""
    path = tmp_path / "run.brick"
    array = spans((INNER, 20, 3_000_000), (OUTER, 10, 5_000_000), (INNER, 40, 1))
    array["step"][0] = 17
    path.write_bytes(recording(chunk(array)))
    return str(path)


def test_spans_lists_the_longest_first_and_counts_the_others(run: str) -> None:
    shown = brickd("spans", run, "-n", "2")
    lines = shown.stdout.splitlines()
    assert [line.split()[:2] for line in lines[1:3]] == [["api/0", "outer"], ["api/0", "inner"]]
    assert lines[3] == "…1 shorter span (-n 20)"
    answer = document("spans", run)
    assert (answer["spans_total"], answer["lost_records"]) == (3, 0)
    assert [each["duration_ns"] for each in answer["spans"]] == [5_000_000, 3_000_000, 1]
    assert answer["spans"][1] == {
        "worker": "api/0", "service": "api", "lane": 0, "thread": 4242, "stream": None, "brick": "inner",
        "category": "ffn", "layer": 3, "path": ["outer", "inner"], "kind": "span", "begin_unix_ns": EPOCH_NS + 20,
        "duration_ns": 3_000_000, "self_ns": 3_000_000, "step": "0000000000000011", "elements": 0, "bytes": 0,
        "rows": None, "lost_before": 0, "step_text": None,
    }  # fmt: skip
    assert [row["brick"] for row in sheet("spans", run, "--step", "17", "--longer", "1ms")] == ["inner"]


def test_a_screen_shows_the_number_of_a_step_in_decimal(run: str) -> None:
    header, row = brickd("spans", run, "-n", "1", "--step", "17").stdout.splitlines()
    assert row[header.index("STEP") :].split()[0] == "17"


def test_without_a_recording_the_next_command_is_shown() -> None:
    for verb, options in (("spans", ()), ("export", ("-f", "csv", "-o", "x.csv"))):
        ended = brickd(verb, *options)
        assert (ended.returncode, ended.stdout) == (2, "")
        assert f"brickd record --spans -o run.brick, then brickd {verb} run.brick" in ended.stderr


def test_a_recording_without_spans_says_how_to_record_them(tmp_path: Path) -> None:
    path = tmp_path / "run.brick"
    path.write_bytes(recording(spans=False))
    assert "`brickd record --spans` records each span" in brickd("spans", str(path)).stdout
    assert "`brickd record --spans` records each span" in brickd("export", str(path), "-f", "csv", "-o", "-").stderr
