"""The formats of text, tables and stacks (JSON Lines, CSV, collapsed stacks, pprof, Parquet), and the file that an
export writes.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import os
import resource
import stat
from pathlib import Path
from typing import Any

import protobuf_reader as protobuf
import pytest
import span_recordings as made
from hypothesis import given
from hypothesis import strategies as st
from pprof_reader import profile
from span_recordings import BEGAN_NS, EPOCH_NS, HOSTILE, INNER, OUTER, chunk, opened, recording, spans
from verbs import brickd, document

from brickd.errors import BrickdError, Exit
from brickd.export import formats, pprof
from brickd.export.formats import FORMATS, export
from brickd.export.lines import KEYS
from brickd.export.protobuf import message, number, numbers, real, text, varint
from brickd.export.span_rows import KINDS, ROW
from brickd.shm import _reader
from brickd.shm.segment_copy import CallPath

TEXTS = [name for name in FORMATS if name not in formats.BINARY]
HERE = [name for name in FORMATS if name != "parquet" or importlib.util.find_spec("pyarrow")]


def exported(folder: Path, form: str, *contents: bytes, **filters: Any) -> bytes:
    """Export a recording, and return the file."""
    file = folder / f"out.{form}"
    with opened(folder, *contents) as forms:
        export(forms, form, str(file), **filters)
    return file.read_bytes()


def nested() -> Any:
    """Return two spans and a step."""
    array = spans((INNER, 20, 10_000), (OUTER, 10, 50_000), (OUTER, 60_100, 7_000))
    array["child"][1] = 10_000
    array["step"][0] = 17
    array["elements"], array["bytes"] = [3, 4, 9], [5, 6, 2]
    array["kind"][2] = _reader.KIND_STEP
    return array


def test_json_lines_begin_with_the_recording_and_end_with_the_counts(tmp_path: Path) -> None:
    content = exported(tmp_path, "jsonl", recording(chunk(nested()), chunk(spans((INNER, 90_000, 1), sequence=6))))
    first, *rows, last = [json.loads(line) for line in content.splitlines()]
    assert (first["kind"], first["schema_version"], first["host"]) == ("recording", 1, "host")
    assert first["clock"] == {"unix_ns": BEGAN_NS, "monotonic_raw_ns": 1000}
    assert last == {
        "kind": "end", "spans": 4, "lost_records": 2, "rejected_records": 0, "nameless_records": 0,
        "unended_device_spans": 0,
    }  # fmt: skip
    assert [tuple(row) for row in rows] == [KEYS] * 4
    assert rows[0] == {
        "worker": "api/0", "service": "api", "lane": 0, "thread": 4242, "stream": None, "brick": "inner",
        "category": "ffn", "layer": 3, "path": ["outer", "inner"], "kind": "span", "begin_unix_ns": EPOCH_NS + 20,
        "duration_ns": 10_000, "self_ns": 10_000, "step": "0000000000000011", "elements": 3, "bytes": 5, "rows": None,
        "lost_before": 0,
    }  # fmt: skip
    assert [(row["self_ns"], row["lost_before"]) for row in rows] == [(10_000, 0), (40_000, 0), (7_000, 0), (1, 2)]
    assert (rows[2]["kind"], rows[2]["rows"], rows[2]["elements"], rows[2]["bytes"]) == ("step", 9, 2, 0)


def test_csv_has_the_same_rows_as_json_lines(tmp_path: Path) -> None:
    run = recording(chunk(nested()))
    rows = list(csv.DictReader(io.StringIO(exported(tmp_path, "csv", run).decode())))
    lines = [json.loads(line) for line in exported(tmp_path, "jsonl", run).splitlines()[1:-1]]
    expected = [
        {key: "" if value is None else ";".join(value) if key == "path" else str(value) for key, value in line.items()}
        for line in lines
    ]
    assert rows == expected


def hostile() -> bytes:
    """Return a recording in which every name is hostile."""
    worker = made.worker(f"{HOSTILE}/0", names=[("other", 0), (HOSTILE, 0), ("inner", 1)], paths=[
        CallPath(-1, 0, -1, 0), CallPath(-1, 1, -1, 0), CallPath(1, 1, 3, 0),
    ])  # fmt: skip
    return recording(chunk(spans((INNER, 20, 10_000), (OUTER, 10, 50_000))), workers=[worker])


def test_hostile_names_are_escaped_in_text(tmp_path: Path) -> None:
    for form in TEXTS:
        content = exported(tmp_path, form, hostile())
        lines = content.decode("utf-8").removesuffix("\n").split("\n")
        assert len(lines) == {"jsonl": 4, "csv": 3, "collapsed": 2}[form]
        assert all(line.isprintable() for line in lines)
    row = json.loads(exported(tmp_path, "jsonl", hostile()).splitlines()[1])
    assert row["brick"] == '=x\x1b[2J"\n;\ufffdé'  # exact, but for the byte that is not UTF-8
    cells = next(csv.reader(io.StringIO(exported(tmp_path, "csv", hostile()).decode().splitlines()[1])))
    assert not any(cell.startswith(("=", "+", "-", "@")) for cell in cells)
    assert len(cells) == len(KEYS)


def test_collapsed_stacks_have_the_self_time_and_merge_layers(tmp_path: Path) -> None:
    content = exported(
        tmp_path, "collapsed", recording(chunk(nested()), chunk(spans((made.GIVEN, 90_000, 2_600), sequence=4)))
    )
    assert content == b"api/0;outer 47\napi/0;outer;inner 13\n"
    stacks = exported(tmp_path, "collapsed", hostile()).decode().splitlines()
    assert [line.rpartition(" ")[2] for line in stacks] == ["50", "10"]
    assert all(line.count(";") == depth for depth, line in enumerate(stacks, 1))


def test_a_profile_has_a_sample_for_each_worker_and_place(tmp_path: Path) -> None:
    workers = [made.worker("api/0", 1), made.worker("api/1", 2)]
    run = recording(chunk(nested()), chunk(spans((INNER, 5, 7), sequence=3), number=2), workers=workers)
    samples, whole = profile(exported(tmp_path, "pprof", run))
    common = {"service": "api", "category": "other"}
    assert samples == [
        {"values": [2, 47_000], "stack": ["outer"], "labels": common | {"worker": "api/0"}},
        {
            "values": [1, 10_000],
            "stack": ["inner", "outer"],
            "labels": {"service": "api", "worker": "api/0", "category": "ffn", "layer": 3},
        },
        {
            "values": [1, 7],
            "stack": ["inner", "outer"],
            "labels": {"service": "api", "worker": "api/1", "category": "ffn", "layer": 3},
        },
    ]
    assert whole[pprof.TIME_NS] == [EPOCH_NS + 5]
    assert whole[pprof.DURATION_NS] == [67_095]


def test_a_profile_with_losses_has_a_comment(tmp_path: Path) -> None:
    run = recording(chunk(spans((INNER, 1, 1))), chunk(spans((INNER, 2, 1), sequence=5)))
    _, whole = profile(exported(tmp_path, "pprof", run))
    (comment,) = whole[pprof.COMMENT]
    assert whole[pprof.STRINGS][comment].startswith(b"3 records lost")


@pytest.mark.ci
def test_parquet_has_the_rows_of_json_lines_and_the_counts(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed: the extra [export] does it")
    for run in (recording(chunk(nested())), hostile(), recording()):
        exported(tmp_path, "parquet", run)
        table = parquet.read_table(tmp_path / "out.parquet")
        lines = [json.loads(line) for line in exported(tmp_path, "jsonl", run).splitlines()]
        assert table.to_pylist() == lines[1:-1]
        metadata = table.schema.metadata
        assert json.loads(metadata[b"brickd"]) | {"kind": "recording"} == lines[0]


def test_parquet_without_pyarrow_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(BrickdError, match=r"pip install 'brickd\[export\]', or use -f csv"):
        exported(tmp_path, "parquet", recording())
    assert [each.name for each in tmp_path.iterdir()] == ["made0.brick"]


@pytest.mark.parametrize("form", HERE)
def test_an_empty_recording_and_one_without_workers_are_exported(tmp_path: Path, form: str) -> None:
    for run in (recording(), recording(workers=[])):
        content = exported(tmp_path, form, run)
        assert (len(content) > 0) is (form != "collapsed")


@pytest.mark.ci
@pytest.mark.parametrize("form", HERE)
def test_ten_thousand_bricks_are_exported(tmp_path: Path, form: str) -> None:
    count = 10_000
    names: list[tuple[str, int] | None] = [(f"n{each}", 0) for each in range(count)]
    worker = made.worker(names=names, paths=[CallPath(-1, each, -1, 0) for each in range(count)])
    run = recording(chunk(spans(*((each, 10 * each, 5) for each in range(count)))), workers=[worker])
    content = exported(tmp_path, form, run)
    if form in TEXTS:
        assert content.count(b"n9999") >= 1
        assert count <= content.count(b"\n") <= count + 2


# ---- C: lines


def lines_of(rows: bytes, track: bytes, room: int) -> tuple[int, bytes]:
    into = bytearray(room)
    kinds = tuple(kind.encode() for kind in KINDS)
    before = tuple(f"|{number}=".encode() for number in range(8))
    places, offsets = b"AB", b"\0\0\0\0\1\0\0\0\2\0\0\0"
    done, used = _reader.span_lines(rows, track, places, offsets, kinds, before, b"\n", b"-", b"'", 5, into)
    return done, bytes(into[:used])


def line(*row: int) -> str:
    begin, duration, own, step, elements, size, rows, path, lost, kind, _ = row
    digits = f"'{step:016x}'" if step else "-"
    numbers = (begin + 5, duration, own, digits, elements, size, rows if kind == 1 else "-", lost)
    return f"T{'AB'[path]}{KINDS[kind]}{''.join(f'|{key}={value}' for key, value in enumerate(numbers))}\n"


@given(
    st.lists(
        st.tuples(
            st.integers(-(2**61), 2**61), st.integers(0, 2**62), st.integers(0, 2**62), st.integers(0, 2**64 - 1),
            st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1), st.integers(0, 1),
            st.integers(0, 2**32 - 1), st.integers(0, 4), st.just(0),
        ),
        max_size=20,
    ),
    st.integers(0, 4000),
)  # fmt: skip
def test_lines_of_numbers_are_those_of_python_in_any_room(rows: list[tuple[int, ...]], room: int) -> None:
    packed = b"".join(ROW.pack(*row) for row in rows)
    expected = [line(*row) for row in rows]
    done, written = lines_of(packed, b"T", room)
    assert written.decode() == "".join(expected[:done])
    assert done == len(rows) or len(written) + 400 > room


@pytest.mark.parametrize("offsets", [b"", b"\0\0\0", b"\0\0\0\0\3\0\0\0", b"\2\0\0\0\1\0\0\0\2\0\0\0"])
def test_offsets_outside_of_the_text_are_refused(offsets: bytes) -> None:
    with pytest.raises(ValueError, match="expected increasing offsets within the text"):
        _reader.span_lines(b"", b"", b"AB", offsets, (b"",) * 5, (b"",) * 8, b"", b"", b"", 0, bytearray(9))


# ---- protocol buffers


@given(st.integers(-(2**63), 2**64 - 1), st.text(), st.floats(allow_nan=False), st.lists(st.integers(0, 2**64 - 1)))
def test_fields_are_read_back(value: int, name: str, amount: float, many: list[int]) -> None:
    data = number(7, value) + text(1000, name) + real(3, amount) + numbers(4, many) + message(5, varint(3))
    found = protobuf.message(data)
    assert found[7] == [value % 2**64]
    assert found[1000] == [name.encode("utf-8", "replace")]
    assert (found[3], protobuf.packed(found[4][0]), found[5]) == ([amount], many, [b"\3"])


# ---- the file


def test_the_file_is_private_and_replaces_an_older_one_when_it_is_complete(tmp_path: Path) -> None:
    file = tmp_path / "out.csv"
    file.write_text("old")
    exported(tmp_path, "csv", recording(chunk(nested())))
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert file.read_text().startswith("worker,")
    old = file.read_bytes()
    with opened(tmp_path, recording()) as forms, pytest.raises(BrickdError, match="no brick x"):
        export(forms, "csv", str(file), bricks=("x",))
    assert file.read_bytes() == old
    assert sorted(each.name for each in tmp_path.iterdir()) == ["made0.brick", "out.csv"]


def test_a_full_disk_is_reported_in_one_line_and_keeps_the_old_file(tmp_path: Path) -> None:
    run, file = tmp_path / "run.brick", tmp_path / "out.jsonl"
    run.write_bytes(recording(chunk(nested())))
    file.write_text("old")
    ended = brickd("export", str(run), "-f", "jsonl", "-o", "/dev/full")
    assert ended.returncode == Exit.TROUBLE
    assert ended.stderr.splitlines()[-1].startswith(
        "brickd: /dev/full: no space is left after 0 bytes, nothing was kept: free some"
    )
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    assert before
    assert (file.read_text(), sorted(os.listdir(tmp_path))) == ("old", ["out.jsonl", "run.brick"])


def test_a_file_that_cannot_be_made_is_reported(tmp_path: Path) -> None:
    run = tmp_path / "run.brick"
    run.write_bytes(recording())
    for file, reason in (
        (tmp_path / "no" / "x", "No such file or directory: use another -o FILE"),
        (tmp_path, "is a directory"),
    ):
        ended = brickd("export", str(run), "-f", "csv", "-o", str(file))
        assert (ended.returncode, reason in ended.stderr) == (2, True), ended.stderr


def test_stdout_gets_only_data_and_stderr_the_report(tmp_path: Path) -> None:
    run = tmp_path / "run.brick"
    run.write_bytes(recording(chunk(nested()), chunk(spans((INNER, 9, 1), sequence=9))))
    ended = brickd("export", str(run), "api/0", "-f", "csv", "-o", "-", "--brick", "inner")
    assert [line.split(",")[5] for line in ended.stdout.splitlines()] == ["brick", "inner", "inner"]
    reported = ended.stderr.splitlines()
    assert "5 records lost" in reported[-2]
    assert reported[-1].startswith("brickd: wrote 2 spans of 1 worker to stdout (")
    assert document("spans", str(run))["lost_records"] == 5
