"""The layout: the C structs, the numpy dtypes and the frozen table agree field by field."""

from __future__ import annotations

import ast
import ctypes
import json
import shutil
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dtypes
import forge
import numpy as np
import pytest
from conftest import INCLUDES, ROOT, WRITER, contents, kept, version
from hypothesis import given
from hypothesis import strategies as st

from brickd.shm import _reader, records

FROZEN: dict[str, Any] = json.loads((forge.GOLDEN / "layout-1.0.json").read_text())
STRUCTS = tuple(FROZEN["sizes"])

WHAT_TO_DO = """\
brick_shm.h no longer has the layout of format 1.0. Segments of released workers have, and this brickd must read them:
 - a field has moved, grown, or changed its type: undo that, or make a new major (BRICK_MAJOR, a reader for both, new
   golden files beside these);
 - a reserved field was given a meaning, or a kind of records was added: put the names into BRICK_LAYOUT_LATER, raise
   BRICK_MINOR, add a golden segment of that minor with tests/native/golden.c.
Never regenerate layout-1.0.json or segment-1.0.bin.gz once 1.0 was released."""


def of(record: str) -> list[list[Any]]:
    return [list(row[1:]) for row in _reader.layout() if row[0] == record]


@pytest.mark.parametrize("record", STRUCTS)
def test_a_struct_has_the_frozen_layout_of_format_1_0(record: str) -> None:
    assert of(record) == FROZEN["fields"][record], WHAT_TO_DO


def test_format_1_has_the_same_structs_as_at_its_freeze() -> None:
    assert list(dict.fromkeys(row[0] for row in _reader.layout())) == list(STRUCTS), WHAT_TO_DO
    assert _reader.FORMAT.split(".")[0] == FROZEN["format"].split(".")[0], WHAT_TO_DO


def test_the_checksum_of_the_layout_is_that_of_the_table() -> None:
    crc = 0
    for record, name, offset, count, code in _reader.layout():
        size = count * struct.calcsize(f"<{code}")
        crc = zlib.crc32((record + name).encode() + struct.pack("<II", offset, size) + code.encode(), crc)
    assert f"{crc:08x}" == FROZEN["layout_crc"], WHAT_TO_DO
    assert crc == forge.header_value(forge.golden(), "layout_crc")


@pytest.mark.parametrize("record", STRUCTS)
def test_the_table_covers_every_byte_of_a_struct_once(record: str) -> None:
    at = 0
    for _, offset, count, code in of(record):
        assert offset == at
        at += count * struct.calcsize(f"<{code}")
    assert at == FROZEN["sizes"][record]


def places(record: str) -> dict[str, tuple[int, int]]:
    """Return offset and size of each field."""
    return {
        name: (offset, count * struct.calcsize(f"<{code}")) for name, offset, count, code in records.fields_of(record)
    }


EVENTS = [struct for _, _, struct, is_event in _reader.KINDS if is_event]


def test_each_record_kind_has_a_unique_number_constant_and_name() -> None:
    names = [name for _, name, _, _ in _reader.KINDS]
    assert [number for number, *_ in _reader.KINDS] == list(range(1, len(names) + 1))
    assert [getattr(_reader, f"KIND_{name.upper()}") for name in names] == list(range(1, len(names) + 1))
    assert [records.kind_name(number) for number in range(len(names) + 2)] == [
        "other",
        *names,
        f"kind_{len(names) + 1}",
    ]


def test_the_golden_segments_have_a_record_of_each_kind() -> None:
    found = set()
    for minor in forge.MINORS:
        with forge.segment_of(forge.golden(minor)) as segment:
            for number, _, _ in segment.read().lanes:
                found |= {each["kind"] for each in records.spans(segment.ring(number, events=False)[1])[0]}
                found |= {each["kind"] for each in records.events(segment.ring(number, events=True)[1])[0]}
    assert found == {number for number, *_ in _reader.KINDS}, WHAT_TO_DO


@pytest.mark.parametrize("record", EVENTS)
def test_a_record_kind_of_a_later_minor_has_the_common_head(record: str) -> None:
    fields = places(record)
    head = {row[0]: (row[1], struct.calcsize(f"<{row[3]}")) for row in of("record")[:4]}
    assert {name: fields[name] for name in ("sequence", "slots", "kind")} == {
        name: head[name] for name in ("sequence", "slots", "kind")
    }


@pytest.mark.parametrize("record", [*EVENTS, "output", "tensor_sums", "tensor_sketch"])
def test_the_table_covers_every_byte_of_a_slot_of_a_later_minor(record: str) -> None:
    fields = places(record)
    ends = [offset + size for offset, size in fields.values()]
    assert [offset for offset, _ in fields.values()] == [0, *ends[:-1]]
    assert ends[-1] == dtypes.dtype(record).itemsize == records.SLOT_BYTES


def test_fields_of_later_minors_are_inside_reserved_bytes() -> None:
    named = [row[1:] for row in _reader.later() if row[0] == "process"]
    ((start, words),) = [(row[1], row[2]) for row in of("process") if row[0] == "reserved"]
    names = ("ended", "took", "sites_refused", "tensors_refused", "key", "weights", "scans", "rate")
    assert named == [(name, start + 8 * n, 1, "Q") for n, name in enumerate(names)]
    assert words >= len(named)
    ((start, _),) = [(row[1], row[2]) for row in of("header") if row[0] == "reserved"]
    assert [row[1:] for row in _reader.later() if row[0] == "header"] == [("rate", start, 1, "I")]
    starts = {row[0]: row[1] for row in of("lane")}
    assert [row[1:] for row in _reader.later() if row[0] == "lane"] == [
        ("marks", starts["reserved2"], 1, "Q"),
        ("marks_refused", starts["reserved2"] + 8, 1, "Q"),
        ("weights_every", starts["reserved3"], 1, "Q"),
        ("weights_once", starts["reserved3"] + 8, 1, "Q"),
        ("rows_turns", starts["reserved3"] + 16, 1, "Q"),
    ]
    ((start, _),) = [(row[1], row[2]) for row in of("summary") if row[0] == "reserved"]
    assert [row[1:] for row in _reader.later() if row[0] == "summary"] == [("flops", start, 1, "d")]


@pytest.mark.parametrize("record", STRUCTS)
def test_numpy_sees_a_struct_as_the_compiler_does(record: str) -> None:
    dtype = dtypes.dtype(record)
    assert dtype.itemsize == FROZEN["sizes"][record]
    assert list(dtype.names or ()) == [row[0] for row in of(record)]
    image = np.random.default_rng(1).bytes(dtype.itemsize)
    seen = np.frombuffer(image, dtype)[0]
    for name, offset, count, code in of(record):
        field, at = (dtype.fields or {})[name][:2]
        assert (at, field.itemsize) == (offset, count * struct.calcsize(f"<{code}"))
        wanted = struct.unpack_from(f"<{count}{code}", image, offset)
        np.testing.assert_array_equal(np.atleast_1d(seen[name]), wanted)


def test_an_unknown_struct_has_no_dtype() -> None:
    with pytest.raises(KeyError, match="brick"):
        dtypes.dtype("brick")


def test_the_sizes_in_the_format_description_are_correct() -> None:
    assert (FROZEN["sizes"]["header"], FROZEN["sizes"]["control"]) == (4096, 4096)
    assert (FROZEN["sizes"]["consumer"], FROZEN["sizes"]["record"], FROZEN["sizes"]["span"]) == (64, 64, 64)
    assert FROZEN["sizes"]["summary"] == _reader.SUMMARY_BYTES
    assert 64 * FROZEN["sizes"]["summary"] % 4096 == 0


def test_the_counts_of_a_header_determine_the_size_of_its_file() -> None:
    assert forge.regions(forge.golden())["size"] == len(forge.golden()) == forge.header_value(forge.golden(), "size")


def test_reserved_fields_are_zero() -> None:
    image = forge.golden()
    places: list[tuple[str, int, int]] = [(name, 0, 0) for name in ("header", "control", "process")]
    places += [(name, lane, 0) for name in ("consumer", "lane") for lane in range(2)]
    places += [("summary", path, lane) for path in range(64) for lane in range(2)]
    for record, index, lane in places:
        seen = np.frombuffer(image, dtypes.dtype(record), 1, forge.place(image, record, index, lane))[0]
        for name in dtypes.dtype(record).names or ():
            assert not (name.startswith("reserved") and np.any(seen[name])), f"{record}.{name}"


@pytest.mark.ci
def test_loading_a_segment_loads_no_numpy() -> None:
    code = "import sys, brickd.shm.segment; print('numpy' in sys.modules)"
    assert (
        subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, check=True, text=True).stdout
        == "False\n"
    )


# ---- buckets


@pytest.fixture(scope="session")
def bucket(compiled: Callable[..., Path]) -> Callable[[int], int]:
    library = compiled("bucket.so", (ROOT / "tests" / "native" / "bucket.c",), "-shared", "-fPIC")
    function = ctypes.CDLL(str(library)).bucket
    function.argtypes, function.restype = [ctypes.c_uint64], ctypes.c_uint32
    return lambda ticks: int(function(ticks))


def exact_bucket(ticks: int) -> int:
    """Return the greatest i with ticks >= 2^(5 + i/4), computed in integers as ticks^4 >= 2^(20 + i)."""
    return min(max((ticks**4).bit_length() - 1 - 20, 0), 127)


@pytest.mark.ci
def test_bucket_boundaries_match_the_format(bucket: Callable[[int], int]) -> None:
    for i in range(1, 4 * 59):
        # The first integer that is at least 2^(5 + i/4).
        low, high = 0, 2**64
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if middle**4 >= 2 ** (20 + i) else (middle + 1, high)
        for ticks in range(low - 2, min(low + 3, 2**64)):
            assert bucket(ticks) == exact_bucket(ticks), ticks
        assert (bucket(low - 1), bucket(low)) == (min(i - 1, 127), min(i, 127))


@given(st.integers(0, 63).flatmap(lambda bits: st.integers(2**bits - 1, 2 ** (bits + 1) - 1)))
def test_any_duration_is_in_its_bucket(bucket: Callable[[int], int], ticks: int) -> None:
    assert bucket(ticks) == exact_bucket(ticks)


# ---- records


def slot(sequence: int, kind: int = _reader.KIND_SPAN, slots: int = 1, **values: int) -> bytes:
    image = np.zeros(1, dtypes.dtype("span"))
    for name, value in {"sequence": sequence, "kind": kind, "slots": slots, **values}.items():
        image[name] = value
    return image.tobytes()


def test_span_records_are_decoded_completely() -> None:
    (span,) = dtypes.span_records(slot(1, path=2, start=3, duration=4, child=5, step=6, elements=7, bytes=2**64 - 1))
    assert span.item() == (1, 2, 1, _reader.KIND_SPAN, 3, 4, 5, 6, 7, 2**64 - 1)
    assert dtypes.span_records(b"").shape == (0,)


def test_records_of_other_kinds_are_skipped_completely() -> None:
    payload = slot(99)
    slots = slot(1) + slot(2, kind=7, slots=3) + payload + payload + slot(3, kind=9) + slot(4)
    assert dtypes.span_records(slots)["sequence"].tolist() == [1, 4]
    assert dtypes.records(slots)["kind"].tolist() == [1, 7, 9, 1]


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from([0, 1, 1, 1, 2, 3, 65535])), max_size=12))
def test_arrays_and_dictionaries_hold_the_same_spans(heads: list[tuple[int, int]]) -> None:
    slots = b"".join(slot(n, kind=kind, slots=count) for n, (kind, count) in enumerate(heads))
    found, others = records.spans(slots)
    assert forge.rows(dtypes.span_records(slots)) == found
    assert len(dtypes.records(slots)) == len(found) + others.total() - others["unreadable"]


@pytest.mark.ci
def test_the_writer_compiles_under_strict_warnings_and_the_headers_as_cpp() -> None:
    strict = ("-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-Wconversion", "-fsyntax-only", *INCLUDES)
    alone = ("-Wno-unused-variable", "-x", "c", "-")  # a header defines constants, which may be unused in a program
    commands = [(("gcc", "-std=c11", *strict, *map(str, WRITER)), "")]
    for header in ("brick_shm", "brick_agent", "brick_graph"):
        commands.append((("gcc", "-std=c11", *strict, *alone), f'#include "{header}.h"\n'))
    if shutil.which("g++") is not None:
        text = '#include "brick_shm.h"\n#include "brick_graph.h"\n'
        commands.append((("g++", "-std=c++17", *strict, "-Wno-unused-variable", "-x", "c++", "-"), text))

    def check(target: Path) -> None:
        for command, text in commands:
            subprocess.run(command, input=text, text=True, check=True)
        target.touch()

    headers = (path for folder in ("include", "src") for path in sorted((ROOT / "agent" / folder).glob("*.h")))
    tools = (version(command[0]) for command, _ in commands)
    kept("strict", (repr(commands).encode(), *tools, *contents((*headers, *WRITER))), check)


def test_each_number_in_the_stub_exists_in_the_module() -> None:
    declared = ast.parse((Path(_reader.__file__).parent / "_reader.pyi").read_text()).body
    names = {
        each.target.id: each.annotation.id
        for each in declared
        if isinstance(each, ast.AnnAssign)
        and isinstance(each.target, ast.Name)
        and isinstance(each.annotation, ast.Name)
    }
    assert {"FORMAT", "REMOVED_MAX", "SUMMARY_BYTES"} <= names.keys()
    assert {name: type(getattr(_reader, name)).__name__ for name in names} == names
