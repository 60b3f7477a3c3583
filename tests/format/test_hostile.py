"""Hostile segments: any bytes give either data or SegmentRefused, and affect no other segment."""

from __future__ import annotations

import itertools
import json
import math
import os
import random
import re
import struct
import threading
from collections.abc import Callable
from typing import Any

import dtypes
import forge
import pytest
from conftest import SHM
from forge import PAGE, U64, golden, place, put, seal, segment_of, with_header
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from brickd.daemon.prune import prune
from brickd.errors import BrickdError, NotPermitted, SegmentRefused
from brickd.model.summary_fold import SummaryFold
from brickd.model.worker_survey import survey
from brickd.shm import _reader, records
from brickd.shm.ledger import ledger_of
from brickd.shm.segment import Segment, open_segment
from brickd.shm.segment_copy import Reading
from brickd.shm.segment_files import SegmentFile, find, opened

SETTINGS = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])


def digest(segment: Segment) -> Reading | None:
    """Read everything that any verb reads from a segment; return the reading, or None if the segment is refused."""
    try:
        reading = segment.read()
    except SegmentRefused:
        return None
    ledger_of(reading).document()
    fold: SummaryFold[tuple[object, ...]] = SummaryFold()
    fold.add(reading, lambda path, above: (above, *path))
    for row in map(fold.row, range(len(fold.keys))):
        assert all(math.isfinite(value) and value >= 0 for value in row.values() if isinstance(value, float | int))
    for number, path in enumerate(reading.paths):
        if path is not None:
            reading.name(path.name).encode()
            assert path.parent < number
    for number, _, _ in reading.lanes:
        for events in (False, True):
            try:
                first, slots = segment.ring(number, events=events)
            except SegmentRefused:
                continue
            assert first >= 0
            records.events(slots)
            found, _ = records.spans(slots)
            assert len(dtypes.span_records(slots)) == len(found)
    assert len(reading.service.encode()) <= 3 * 64
    return reading


def judged(image: bytes) -> Reading | None:
    """Return the `digest` of a segment with these bytes."""
    try:
        with segment_of(image) as segment:
            return digest(segment)
    except SegmentRefused:
        return None


def refusal(image: bytes) -> str:
    with pytest.raises(SegmentRefused) as caught, segment_of(image) as segment:
        segment.read()
    return caught.value.reason


@pytest.fixture
def put_file(prefix: str) -> Callable[[bytes], str]:
    """Yield a function that puts a file with the given bytes into /dev/shm."""
    numbers = itertools.count()

    def write(image: bytes) -> str:
        name = f"{prefix}{next(numbers)}"
        forge.placed(name, image)
        return name

    return write


# ---- the golden segment


@pytest.mark.parametrize("minor", forge.MINORS)
def test_the_golden_segment_has_its_recorded_content(put_file: Callable[[bytes], str], minor: str) -> None:
    wanted = json.loads((forge.GOLDEN / f"segment-{minor}.json").read_text())
    with open_segment(put_file(golden(minor))) as segment:
        seen = forge.document(segment)
        assert segment.worker() is None
    for record in ("header", "process"):
        wanted[record] = records.named_later(record) | wanted[record]
    for each in wanted["lanes"]:
        each["lane"] = records.named_later("lane") | each["lane"]
    for ring in wanted.get("events", {}).values():
        for output in (each["output"] for each in ring["records"] if "output" in each):
            output.setdefault("token", 0)  # since 1.14
    wanted.setdefault("flops", {})
    wanted.setdefault("events", {number: {"first": 0, "records": []} for number in wanted["spans"]})
    for document in (wanted, seen):
        # delete the values that depend on the user who runs the test
        del document["header"]["uid"], document["header"]["header_crc"]
    assert seen == wanted


def test_the_golden_segment_has_an_exact_ledger() -> None:
    with segment_of(golden()) as segment:
        reading = digest(segment)
        assert reading is not None
        first, slots = segment.ring(0, events=False)
    ledger = ledger_of(reading)
    # The worker of the segment died while it changed a summary: that span is unpublished, and the open spans are
    # abandoned.
    assert {term: n for term, n in ledger.spans.items() if n} == {
        **{"begun": 15, "summarized": 12, "abandoned": 2, "unpublished": 1, "unmatched": 1}
    }
    assert reading.odd == 1
    assert (reading.service, reading.coordinates, reading.header["index"]) == ("golden", "0.tp3.pp1", 0)
    spans = dtypes.span_records(slots)
    assert first == 3
    # The worker recorded nine spans into a ring of eight slots before any was consumed, so the ninth span was dropped.
    assert spans["sequence"].tolist() == [4, 5, 6, 7, 8, 10, 11]
    assert set(spans["step"].tolist()) == {0, 7}
    assert ("\x1b[31m模", 0) in reading.names


def test_cached_tables_belong_to_their_segment_only() -> None:
    other = bytearray(golden())
    put(other, "name", {"text": b"another name"}, index=2)
    wanted = None
    for image in (golden(), other, golden(), golden()):
        with segment_of(bytes(image)) as segment:
            names, sites = segment.tables()
            reported = [*names], segment.read().paths
            assert isinstance(names, list)
            names.clear()  # the caller may change the list, which must not change the reading
            assert (segment.tables().names, segment.tables().sites) == (reported[0], sites)
        wanted = wanted or reported
        differ = [n for n, (one, another) in enumerate(zip(reported[0], wanted[0], strict=True)) if one != another]
        assert (differ, reported[1]) == ([2] if image is other else [], wanted[1])


def test_steps_and_given_times_are_read_from_format_1_1() -> None:
    with segment_of(golden("1.1")) as segment:
        reading = segment.read()
        _, slots = segment.ring(0, events=False)
    given, step = dtypes.span_records(slots)[-2:]
    assert step["kind"] == _reader.KIND_STEP
    assert (step["step"], step["elements"], step["bytes"], step["duration"]) == (7, 32, 30, 20)
    assert (given["kind"], given["step"], given["duration"]) == (_reader.KIND_SPAN, 7, 17)
    path = reading.paths[given["path"]]
    assert path is not None
    assert (path.unit, path.parent) == (_reader.UNIT_NS, step["path"])
    summary = dtypes.summaries(reading.summaries)[step["path"]]
    assert (summary["elements"], summary["bytes"]) == (30, 0), "rows of padding do not count as work"


def test_deferred_work_is_read_from_format_1_2() -> None:
    with segment_of(golden("1.2")) as segment:
        reading = segment.read()
        first, slots = segment.ring(0, events=True)
    events, _ = records.events(slots)
    kinds = ["defer", "measured", "finalize", *["defer"] * 4, "finalize"]
    assert (first, [records.kind_name(each["kind"]) for each in events]) == (2, kinds)
    start, measured, finalize = events[:3]
    assert (start["start"], start["stream"], start["id"], start["step"]) == (
        1_000_025_020,
        0x7F00DEAD0040,
        3 | 1 << 48,
        7,
    )
    path = reading.paths[start["path"]]
    assert path is not None
    assert (path.unit, path.layer, reading.name(path.name)) == (_reader.UNIT_DEFERRED, 2, "attention")
    assert (measured["id"], measured["elapsed_ns"]) == (2 | 1 << 48, 17)
    assert (finalize["every"], finalize["stream"], finalize["ticks"]) == (0, 5, 1_000_025_050)
    assert (events[-1]["every"], events[-1]["sequence"]) == (1, 11), "one start was dropped, so its number is missing"
    ledger = ledger_of(reading).document()
    streamed = {"consumed": 2, "dropped": {"defer": 1}, "in_ring": 9, "lost_with_daemon": 0, "removed": 0}
    assert ledger["events"] == streamed
    assert ledger["spans"]["unmatched"] == 2


def test_flops_and_a_segments_own_rate_are_read_from_format_1_5() -> None:
    with segment_of(golden("1.5")) as segment:
        reading = segment.read()
    found = {}
    for number, counted in forge.flops(reading).items():
        path = reading.paths[int(number)]
        assert path is not None
        found[reading.name(path.name), path.layer] = counted
    assert found == {("attention", 0): 1e15, ("attention", 1): 1e15}, "an invalid number is counted, not used"
    assert reading.lanes[0][1]["amounts"] == 3
    assert (reading.process["rate"], reading.header["rate"]) == (1 << 26, 1 << 30)


# ---- every byte


def stretches() -> dict[str, tuple[int, int, int]]:
    """Return ranges of bytes by name: the first byte, the number of bytes, and the step (1: change every byte; n:
    change every n-th byte)."""
    at, image = forge.regions(golden()), golden()
    result = {name: (at[name], size, 1) for name, size in (("header", PAGE), ("consumer", 128), ("process", 128))}
    result["lane"] = (at["lane"], 2 * 384, 1)
    result["path"] = (at["path"], 64 * 8, 1)
    result["control"] = (at["control"], PAGE, 1)
    result["name"] = (at["name"], 6 * 128, 1)
    result["unused name"] = (at["name"] + 6 * 128, 58 * 128, 97)
    result["slack"] = (at["consumer"] + 128, PAGE - 128, 61)
    for lane in range(2):
        area = at["area"] + lane * at["stride"]
        result[f"sequences {lane}"] = (area, 64 * 8, 1)
        result[f"summaries {lane}"] = (area + at["summary"], 14 * 1152, 7)
        result[f"unused summaries {lane}"] = (area + at["summary"] + 14 * 1152, 50 * 1152, 499)
        result[f"span ring {lane}"] = (area + at["span_ring"], 8 * 64, 1)
        result[f"event ring {lane}"] = (area + at["event_ring"], 4 * 64, 5)
    assert len(image) == at["size"]
    return result


STRETCHES = stretches()


def mutate(stretch: str, step: int, values: Callable[[int], tuple[int, ...]]) -> tuple[int, int]:
    """Change one byte at a time; return the number of changes, and how many of the changed segments were refused."""
    start, length, _ = STRETCHES[stretch]
    image = golden()
    fd = os.memfd_create("mutated")
    tried = refused = 0
    try:
        os.write(fd, image)
        for at in range(start, start + length, step):
            for value in values(image[at]):
                os.pwrite(fd, bytes([value]), at)
                tried += 1
                try:
                    refused += digest(Segment("mutated", fd)) is None
                except SegmentRefused:
                    refused += 1
            os.pwrite(fd, image[at : at + 1], at)
    finally:
        os.close(fd)
    return tried, refused


@pytest.mark.parametrize("stretch", STRETCHES)
def test_a_changed_byte_gives_data_or_a_refusal(stretch: str) -> None:
    # This fast test flips all bits of a sample of bytes. The slow test below tries fifteen times as many bytes.
    _, length, step = STRETCHES[stretch]
    tried, refused = mutate(stretch, max(step * 15, 1) | 1, lambda old: (old ^ 0xFF,))
    assert tried > length // (step * 15 + 2)
    if stretch == "header":
        assert refused == tried, "the checksum covers every byte of the header"


@pytest.mark.slow
@pytest.mark.parametrize("stretch", STRETCHES)
def test_any_changed_byte_gives_data_or_a_refusal(stretch: str) -> None:
    _, length, step = STRETCHES[stretch]
    tried, refused = mutate(stretch, step, lambda old: (old ^ 0xFF, old ^ 1, old ^ 0x80, old + 1 & 0xFF))
    assert tried >= 4 * (length // step)
    assert refused < tried or stretch == "header"
    print(f"{stretch}: {tried} mutants, {refused} refused")


@pytest.mark.nightly
def test_every_word_replaced_by_an_extreme_one_gives_data_or_a_refusal() -> None:
    image, at = golden(), forge.regions(golden())
    words = [n for start, length, step in STRETCHES.values() if step == 1 for n in range(start, start + length, 8)]
    words += range(at["area"] + at["summary"], at["area"] + at["summary"] + 14 * 1152, 8)
    extremes = [struct.pack("<Q", v) for v in (1, 2**31, 2**32 - 1, 2**62, 2**62 + 1, 2**63, U64)]
    extremes += [struct.pack("<d", v) for v in (math.inf, -math.inf, math.nan, 1.7e308, -0.0, 5e-324)]
    for word in words:
        for extreme in extremes:
            changed = bytearray(image)
            changed[word : word + 8] = extreme
            judged(seal(changed) if word < PAGE else bytes(changed))


def test_a_segment_truncated_at_any_length_is_refused() -> None:
    image = golden()
    lengths = {0, 1, 7, 8, 9, PAGE - 1, PAGE, PAGE + 1, len(image) - 1, *range(0, len(image), 1499)}
    for length in sorted(lengths):
        assert judged(image[:length]) is None, length


def test_a_segment_longer_than_its_header_states_is_refused() -> None:
    assert "bytes, but its header says" in refusal(golden() + b"\0")


# ---- headers


COUNTS = ("lanes", "paths", "names", "buckets", "size")
# These regions are padded to a page boundary. So with a slightly different count, the segment has the same size and is
# still valid.
PAGED = ("sites", "span_slots", "event_slots")
WORD = st.sampled_from([0, 1, 2, 63, 64, 65, 1024, 1025, 65472, 65536, 2**24, 2**24 + 1, 2**31, 2**32 - 1])
WORD |= st.integers(0, 2**32 - 1)


FIELDS = (*COUNTS, *PAGED, "clock", "minor", "index", "uid", "pid", "endian")


@given(st.dictionaries(st.sampled_from(FIELDS), WORD, min_size=1))
@SETTINGS
def test_a_wrong_header_with_a_valid_checksum_gives_data_or_a_refusal(values: dict[str, int]) -> None:
    limits = {"minor": 2**16 - 1, "index": 2**31 - 1}
    values = {name: min(value, limits.get(name, U64)) for name, value in values.items()}
    reading = judged(with_header(**values))
    changed = {name: v for name, v in values.items() if v != forge.header_value(golden(), name)}
    if changed.keys() & {*COUNTS, "uid", "endian"}:
        assert reading is None
    elif reading is None:
        assert changed.keys() & set(PAGED) or values.get("clock", 3) not in (1, 2, 3)
    else:
        assert values.get("clock", 3) in (1, 2, 3)


@given(*(st.integers(0, 2**64 - 1) for _ in range(4)), st.sampled_from([1, 3]))
@SETTINGS
def test_wrong_clocks_and_dates_give_data(ticks: int, ns: int, started: int, process: int, clock: int) -> None:
    reading = judged(
        with_header(anchor_ticks=ticks, anchor_ns=ns, started_ns=started, process_start=process, clock=clock)
    )
    assert reading is not None
    assert 0.05 <= reading.tick_ns <= 50


def test_counts_that_contradict_the_size_are_refused() -> None:
    image = bytearray(golden())
    put(image, "header", {"lanes": 1024, "paths": 65472, "span_slots": 2**24})
    put(image, "header", {"size": forge.regions(image)["size"]})
    assert "the file has 204800 bytes" in refusal(seal(image))


def test_a_sparse_segment_is_read_without_allocating_its_holes() -> None:
    image = bytearray(golden()[:PAGE])
    put(image, "header", {"lanes": 64, "paths": 65472, "names": 65472, "span_slots": 2**16})
    size = forge.regions(image)["size"]
    put(image, "header", {"size": size})
    fd = os.memfd_create("sparse")
    try:
        os.write(fd, seal(image))
        os.truncate(fd, size)
        reading = digest(Segment("sparse", fd))
        assert reading is not None
        assert reading.lanes == []
        assert os.fstat(fd).st_blocks * 512 < 1 << 20
    finally:
        os.close(fd)


def test_another_major_version_is_refused_by_its_number() -> None:
    for major in (0, 2, 65535):
        assert f"format {major}." in refusal(with_header(major=major))


def test_a_layout_that_changed_within_a_major_version_is_refused() -> None:
    assert "layout 00000001 of format 1.0" in refusal(with_header(layout_crc=1))


def test_another_byte_order_is_refused() -> None:
    assert "another byte order" in refusal(with_header(endian=0x04030201))


def test_a_newer_minor_version_is_read_without_its_additions() -> None:
    image = bytearray(golden())
    put(image, "header", {"minor": 2**16 - 1, "reserved": b"\xaa" * 3824, "reserved0": 7})
    put(image, "control", {"reserved": (5,) * 253, "flags": 1 << 20})
    put(image, "process", {"reserved": (5,) * 8})
    for lane in range(2):
        put(
            image,
            "lane",
            {"reserved1": 1, "reserved2": (1, 2, 3), "reserved3": (9,) * 8, "event_dropped": (3,) * 16},
            lane,
        )
        put(image, "consumer", {"reserved": (1, 2)}, lane)
        for path in range(14):
            put(image, "summary", {"reserved": (8,) * 7}, path, lane)
    for index, (number, count) in enumerate(((20, 2), (1, 1), (30, 1))):
        put(image, "event_ring", {"sequence": index + 1, "kind": number, "slots": count}, index, kind="record")
    put(image, "lane", {"event_head": 4, "event_attempts": 3, "event_records": 3})
    with segment_of(seal(image)) as segment, segment_of(golden()) as old:
        newer, older = digest(segment), digest(old)
        _, slots = segment.ring(0, events=True)
    assert newer is not None
    assert older is not None
    assert forge.rows(dtypes.summaries(newer.summaries)) == forge.rows(dtypes.summaries(older.summaries))
    assert newer.paths == older.paths
    assert dtypes.records(slots)["kind"].tolist() == [20, 30]
    assert newer.header["minor"] == 2**16 - 1


# ---- invalid contents


def test_cyclic_paths_are_refused() -> None:
    for parent in (3, 4, 5, 63, 64, 0xFFFE):
        image = bytearray(golden())
        struct.pack_into("<Q", image, place(image, "path", 3), 1 << 63 | 1 << 16 | parent)
        assert f"path 3 is below path {parent}" in refusal(bytes(image))


def test_a_path_with_an_invalid_name_is_refused() -> None:
    image = bytearray(golden())
    struct.pack_into("<Q", image, place(image, "path", 3), 1 << 63 | 64 << 16 | 0xFFFF)
    assert "path 3 has name 64, expected a name below 64" in refusal(bytes(image))


@given(st.integers(0, 0xFFFF), st.binary(min_size=120, max_size=120), st.booleans(), st.integers(0, 2**32 - 1))
@SETTINGS
def test_a_name_of_any_bytes_is_shortened_and_stays_data(length: int, text: bytes, ready: bool, category: int) -> None:
    image = bytearray(golden())
    put(image, "name", {"word": ready << 31 | length, "category": category, "text": text}, 2)
    reading = judged(bytes(image))
    if ready and length > 120:
        assert reading is None
    else:
        assert reading is not None
        assert reading.names[2] is None or reading.names[2][0] == text[:length].decode("utf-8", "replace")
        reading.category(2)


@pytest.mark.parametrize(
    "text", [b"\xff" * 120, b"\0" * 120, b"\x1b]0;owned\x07", "\u202e\U000e0001".encode(), b"=cmd|' /C calc'!A0"]
)
def test_a_name_with_escapes_stays_data(text: bytes) -> None:
    image = bytearray(golden())
    put(image, "name", {"word": 1 << 31 | len(text), "text": text}, 2)
    reading = judged(bytes(image))
    assert reading is not None
    assert reading.name(2) == text.decode("utf-8", "replace")


@given(st.binary(min_size=64, max_size=64), st.binary(min_size=64, max_size=64))
@SETTINGS
def test_labels_of_any_bytes_stay_data(service: bytes, coordinates: bytes) -> None:
    reading = judged(with_header(service=service, coordinates=coordinates))
    assert reading is not None
    assert reading.service == service.split(b"\0")[0].decode("utf-8", "replace")


EXTREME = st.sampled_from([0, 1, 2**31, 2**53, 2**61, 2**62, 2**62 + 1, 2**63 - 1, 2**63, U64]) | st.integers(0, U64)
REAL = st.floats(allow_nan=True, allow_infinity=True) | st.sampled_from([math.nan, math.inf, -math.inf, -1.0, 1.7e308])
ENTRY = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(("count", "total", "child", "again", "min", "max", "elements", "bytes"), EXTREME)
) | st.fixed_dictionaries({}, optional={"squares": REAL, "flops": REAL})


@given(ENTRY, ENTRY, st.integers(0, 127), EXTREME, EXTREME)
@SETTINGS
def test_impossible_totals_are_refused_and_others_are_finite(
    one: dict[str, Any], other: dict[str, Any], bucket: int, spans: int, sequence: int
) -> None:
    image = bytearray(golden())
    for lane, entry in enumerate((one, other)):
        put(image, "summary", entry, 2, lane)
        struct.pack_into("<Q", image, place(image, "summary", 2, lane) + 128 + 8 * bucket, spans)
        struct.pack_into(
            "<Q", image, forge.regions(image)["area"] + lane * forge.regions(image)["stride"] + 16, sequence
        )
    judged(bytes(image))


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ({"squares": math.nan}, "sum of squares"),
        ({"squares": math.inf}, "sum of squares"),
        ({"squares": -1.0}, "sum of squares"),
        ({"squares": 1.7e308}, "sum of squares"),
        ({"flops": math.nan}, "floating-point operations"),
        ({"flops": math.inf}, "floating-point operations"),
        ({"flops": -1.0}, "floating-point operations"),
        ({"flops": 1e43}, "floating-point operations"),
        ({"total": 2**63}, "2^62"),
        ({"child": 2**63}, "2^62"),
        ({"again": U64}, "2^62"),
        ({"max": U64}, "2^62"),
        ({"min": 2**62 + 1}, "2^62"),
        ({"count": 2**63}, "histogram"),
        ({"count": 2}, "histogram"),
        ({"count": 0}, "histogram"),
        ({"min": 2000}, "contradict"),
        ({"max": 5000}, "contradict"),
        ({"again": 1001}, "contradict"),
    ],
)
def test_an_impossible_total_is_refused_with_its_reason(entry: dict[str, Any], why: str) -> None:
    image = bytearray(golden())
    put(image, "summary", entry, 2)  # the summary of one span of 1,000 ticks
    assert why in refusal(bytes(image))


LIMITS = dict.fromkeys(("count", "total", "child", "again", "min", "max"), 2**62) | {"squares": 2.0**124}


@pytest.mark.parametrize("beyond", [None, *LIMITS])
def test_totals_are_valid_up_to_their_exact_limits(beyond: str | None) -> None:
    image = bytearray(golden())
    entry = LIMITS | (
        {beyond: math.nextafter(2.0**124, math.inf) if beyond == "squares" else 2**62 + 1} if beyond else {}
    )
    put(image, "summary", {**entry, "histogram": (2**62,) + (0,) * 127}, 2)
    if beyond is None:
        assert judged(bytes(image)) is not None
    else:
        assert "path 2" in refusal(bytes(image))


@pytest.mark.parametrize("buckets", [(2**62,) * 4, (2**62, 2**62, 2**62, 2**62 - 5, 5)])
def test_buckets_whose_sum_overflows_to_the_right_count_are_refused(buckets: tuple[int, ...]) -> None:
    image = bytearray(golden())
    put(image, "summary", {"count": 0, "histogram": buckets + (0,) * (128 - len(buckets))}, 2)
    assert "histogram" in refusal(bytes(image))


def test_an_entry_whose_writer_died_inside_is_read_and_marked() -> None:
    with segment_of(golden()) as segment:
        reading = segment.read()
    dead = dtypes.summaries(reading.summaries)[13]
    assert (reading.odd, dead["count"], dead["total"], dead["histogram"].sum()) == (1, 1, 500, 0)


@pytest.mark.ci
@given(st.integers(0, U64), st.integers(0, U64), st.integers(0, U64), st.sampled_from(["span", "event"]))
@SETTINGS
def test_heads_and_tails_of_any_value_give_records_or_a_refusal(
    head: int, position: int, complement: int, ring: str
) -> None:
    for other in (complement, position ^ U64):
        image = bytearray(golden())
        put(image, "lane", {f"{ring}_head": head})
        put(image, "consumer", {ring: (position, other)})
        with segment_of(bytes(image)) as segment:
            digest(segment)
            slots = 8 if ring == "span" else 4
            believed = position == other ^ U64 and position <= head <= position + slots
            if believed or ((position, other) == (0, 0) and head <= slots):
                first, records_ = segment.ring(0, events=ring == "event")
                assert (first, len(records_)) == (position, (head - position) * 64)
            else:
                with pytest.raises(SegmentRefused, match=r"head .* tail"):
                    segment.ring(0, events=ring == "event")


@given(st.integers(0, 20), st.lists(st.tuples(st.integers(0, 65535), st.integers(0, 65535)), min_size=8, max_size=8))
@SETTINGS
def test_spans_are_found_among_records_of_unknown_kinds_and_sizes(head: int, heads: list[tuple[int, int]]) -> None:
    image = bytearray(golden())
    for index, (kind, slots) in enumerate(heads):
        put(image, "span_ring", {"kind": kind % 3, "slots": slots % 4}, index, kind="record")
    tail = max(head - 8, 0)
    put(image, "lane", {"span_head": head})
    put(image, "consumer", {"span": (tail, tail ^ U64)})
    assert judged(bytes(image)) is not None


@given(st.lists(st.tuples(st.integers(0, 47), EXTREME), max_size=6), st.lists(st.tuples(st.integers(0, 15), EXTREME)))
@SETTINGS
def test_counters_of_any_value_give_data(lane: list[tuple[int, int]], process: list[tuple[int, int]]) -> None:
    image = bytearray(golden())
    for record, words in (("lane", lane), ("process", process)):
        for word, value in words:
            struct.pack_into("<Q", image, place(image, record) + 8 * word, value)
    assert judged(bytes(image)) is not None


def test_values_in_the_consumers_lines_change_no_total() -> None:
    image = bytearray(golden())
    for lane in range(2):
        put(image, "consumer", {"span": (U64, 0), "event": (7, 7), "spans_lost": 5, "events_read": U64}, lane)
    scribbled, honest = judged(bytes(image)), judged(golden())
    assert scribbled is not None
    assert honest is not None
    assert scribbled.summaries == honest.summaries
    assert ledger_of(scribbled).spans == ledger_of(honest).spans


# ---- files that are not segments


@pytest.fixture
def files_of_other_kinds(prefix: str) -> dict[str, str]:
    """Create one file of each kind that has the name of a segment but is not a segment."""
    names = {kind: f"{prefix}{kind}" for kind in ("link", "hard", "fifo", "folder", "real", "empty")}
    forge.placed(names["real"], golden())
    os.link(SHM / names["real"], SHM / names["hard"])
    os.symlink(names["real"], SHM / names["link"])
    os.mkfifo(SHM / names["fifo"])
    (SHM / names["folder"]).mkdir()
    forge.placed(names["empty"], b"")
    if os.geteuid() == 0:
        names["device"] = f"{prefix}device"
        os.mknod(SHM / names["device"], 0o600 | 0o020000, os.makedev(1, 5))  # the device numbers of /dev/zero
    return names


def test_anything_but_a_regular_file_is_refused_without_blocking(
    files_of_other_kinds: dict[str, str], prefix: str
) -> None:
    assert set(find(prefix)) == set(files_of_other_kinds.values())
    for kind, name in files_of_other_kinds.items():
        if kind in ("real", "hard"):
            continue
        with pytest.raises((SegmentRefused, NotPermitted)) as caught:
            open_segment(name)
        assert name in str(caught.value), kind


def test_a_file_with_two_names_is_one_worker(files_of_other_kinds: dict[str, str], prefix: str) -> None:
    found = survey(prefix)
    assert [each.reading.file for each in found.workers] == [files_of_other_kinds["hard"]]
    assert not {files_of_other_kinds["real"], files_of_other_kinds["hard"]} & {each.path for each in found.refused}


@pytest.mark.parametrize("name", ["gone", "", ".", "..", "/", "a/b", "x" * 300, "nul\0nul", "\udcff"])
def test_a_dangling_link_is_refused(prefix: str, name: str) -> None:
    with pytest.raises((SegmentRefused, NotPermitted)):
        open_segment(name if name in ("", ".", "..", "/") else prefix + name)


@pytest.mark.parametrize("suffix", [os.fsdecode(b"\xff\xfe"), "ä", "a b", "a\n", "a;b", "a\u0661", "~", "$(rm)"])
def test_invalid_segment_names_are_refused_and_not_removed(prefix: str, suffix: str) -> None:
    name = prefix + suffix
    (SHM / name).write_bytes(golden())
    assert find(prefix) == [name]
    (refused,) = prune(remove=True, wait=lambda _: None, refused_too=True).refused
    assert refused.path == name
    assert "characters other than letters, digits, '.', '_' and '-'" in refused.reason
    assert (SHM / name).exists()


def test_segments_under_any_text_prefix_are_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    prefix = f"test-brickd-{os.getpid()} ä\n;-"
    monkeypatch.setenv("BRICKD_SHM_PREFIX", prefix)
    forge.placed(f"{prefix}aZ09._-", golden())
    with open_segment(f"{prefix}aZ09._-") as segment:
        assert digest(segment) is not None
        assert segment.unlink()
        assert not segment.unlink()
    assert find(prefix) == []


def test_unlink_reports_a_file_removed_by_another_process(put_file: Callable[[bytes], str]) -> None:
    class Raced(SegmentFile):
        def same_file(self) -> bool:
            same = super().same_file()
            os.unlink(SHM / self.name)
            return same

    name = put_file(golden())
    with Raced(name, opened(name, os.O_RDONLY)) as file:
        assert not file.unlink()


def test_a_prefix_that_is_not_utf8_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BRICKD_SHM_PREFIX", os.fsdecode(b"brickd-\xff-"))
    with pytest.raises(BrickdError, match=re.escape("BRICKD_SHM_PREFIX is b'brickd-\\xff-', expected UTF-8")):
        find()


@pytest.mark.parametrize("given", ["a/b", "/", "x" * 40, "é" * 20])
def test_a_prefix_that_no_worker_accepts_is_refused(monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    monkeypatch.setenv("BRICKD_SHM_PREFIX", given)
    expected = f"BRICKD_SHM_PREFIX is '{given}', expected at most 39 bytes without a slash"
    with pytest.raises(BrickdError, match=re.escape(expected)):
        find()


@pytest.mark.parametrize("given", ["x" * 39, "é" * 19 + "x", "."])
def test_a_prefix_that_workers_accept_is_accepted(monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    monkeypatch.setenv("BRICKD_SHM_PREFIX", given)
    assert all(name.startswith(given) for name in find())  # other processes can have files that begin with a dot


def test_a_file_of_an_exbibyte_is_refused_by_its_size(put_file: Callable[[bytes], str]) -> None:
    for image in (golden(), with_header(size=2**60), b"", b"\1" * 8):
        name = put_file(image)
        os.truncate(SHM / name, 2**60)
        with pytest.raises(SegmentRefused):
            open_segment(name)


# ---- results


@pytest.mark.parametrize("value", [1, 2**63, U64])
def test_no_term_of_the_ledger_is_negative_for_any_consumer_line(value: int) -> None:
    image = bytearray(golden())
    lanes = forge.header_value(image, "lanes")
    for lane in range(lanes):
        put(image, "consumer", {"spans_lost": value, "events_read": value}, lane)
        put(image, "consumer", {"span": (value, value ^ U64), "event": (value, value ^ U64)}, lane)
    with segment_of(bytes(image)) as segment:
        reading = segment.read()
    ledger = ledger_of(reading)
    for stream, heads in ((ledger.details, "span_head"), (ledger.events, "event_records")):
        assert min(stream.values()) >= 0
        assert stream.total() == sum(lane[heads] for _, lane, _ in reading.lanes)  # type: ignore[literal-required]


# ---- changes during a reading


def bounded(seconds_of_work: int, change: Callable[[int], None], look: Callable[[], None]) -> None:
    """Read repeatedly, a limited number of times, while a thread changes something."""
    done = threading.Event()
    failed: list[BaseException] = []

    def changer() -> None:
        try:
            for n in range(seconds_of_work):
                change(n)
        except BaseException as error:
            failed.append(error)
        finally:
            done.set()

    thread = threading.Thread(target=changer)
    thread.start()
    try:
        look()
        while not done.is_set():
            look()
    finally:
        thread.join()
    assert not failed


@pytest.mark.ci
def test_a_segment_truncated_while_it_is_read_gives_data_or_a_refusal(
    put_file: Callable[[bytes], str],
) -> None:
    name, image = put_file(golden()), golden()
    rng = random.Random(1)
    fd = os.open(SHM / name, os.O_RDWR)
    seen = {"whole": 0, "refused": 0}

    def change(n: int) -> None:
        os.truncate(fd, rng.randrange(len(image)) if n % 3 else 0)
        os.pwrite(fd, image, 0)

    def look() -> None:
        try:
            with open_segment(name) as segment:
                seen["refused" if digest(segment) is None else "whole"] += 1
        except SegmentRefused:
            seen["refused"] += 1

    bounded(40 * settings().max_examples, change, look)
    look()
    os.close(fd)
    assert seen["whole"] > 0
    assert sum(seen.values()) > 1


def test_a_segment_truncated_after_it_was_opened_is_refused(put_file: Callable[[bytes], str]) -> None:
    name = put_file(golden())
    with open_segment(name) as segment:
        for length in (130_000, 30_000, PAGE, 0):
            os.truncate(SHM / name, length)
            with pytest.raises(SegmentRefused, match="truncated"):
                segment.read()
            with pytest.raises(SegmentRefused, match="truncated"):
                segment.ring(1, events=False)


def test_a_header_is_copied_once(put_file: Callable[[bytes], str]) -> None:
    name = put_file(golden())
    with open_segment(name) as segment:
        before = segment.read()
        (SHM / name).write_bytes(b"\xff" * PAGE + golden()[PAGE:])
        after = segment.read()
        assert after.header == before.header
        assert after.summaries == before.summaries


def test_a_segment_overwritten_while_it_is_read_gives_data_or_a_refusal(
    put_file: Callable[[bytes], str],
) -> None:
    name, image = put_file(golden()), golden()
    rng = random.Random(2)
    fd = os.open(SHM / name, os.O_RDWR)

    def change(n: int) -> None:
        start, length, _ = rng.choice(list(STRETCHES.values()))
        at = start + rng.randrange(length)
        os.pwrite(fd, rng.choice([b"\xff" * 8, rng.randbytes(8), image[at : at + 8]]), at)
        if n % 50 == 0:
            os.pwrite(fd, image, 0)

    def look() -> None:
        try:
            with open_segment(name) as segment:
                digest(segment)
        except SegmentRefused:
            pass

    bounded(280 * settings().max_examples, change, look)
    os.close(fd)


def test_a_file_replaced_under_its_name_is_noticed_and_not_unlinked(put_file: Callable[[bytes], str]) -> None:
    name = put_file(golden())
    with open_segment(name) as segment:
        assert segment.same_file()
        other = put_file(golden())
        os.rename(SHM / other, SHM / name)
        assert not segment.same_file()
        assert not segment.unlink()
        assert (SHM / name).exists()
    with open_segment(name) as segment:
        assert segment.unlink()
        assert not segment.same_file()
        assert not segment.unlink()


@pytest.mark.ci
def test_a_constantly_replaced_name_opens_one_whole_file_or_none(prefix: str) -> None:
    images = [with_header(index=n) for n in (1, 2)]
    reasons: set[str] = set()
    name = f"{prefix}name"
    forge.placed(name, images[0])

    def change(n: int) -> None:
        (SHM / f"{prefix}next").write_bytes(images[n % 2])
        if n % 5 == 0:
            (SHM / name).unlink(missing_ok=True)
        os.rename(SHM / f"{prefix}next", SHM / name)

    def look() -> None:
        try:
            with open_segment(name) as segment:
                inode = os.fstat(segment.fd).st_ino
                assert digest(segment) is not None
                assert segment.header["index"] in (1, 2)
                if segment.same_file():
                    assert os.fstat(segment.fd).st_ino == inode
        except SegmentRefused as refused:
            reasons.add(refused.reason)

    bounded(28 * settings().max_examples, change, look)
    # A rename may replace the old file before this process reads it.
    assert reasons <= {"no longer exists", "has 0 links, not 1"}
