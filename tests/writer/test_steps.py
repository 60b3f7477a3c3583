"""Steps of an engine, times that were measured elsewhere, nested layers, amounts."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import textwrap
from typing import Any

import dtypes
import pytest
from conftest import SHM, reading
from forge import rows
from recorded import Start, counts, record, spans, summaries

from brickd.shm import _reader
from brickd.shm.ledger import ledger_of
from brickd.shm.losses import losses
from brickd.shm.segment import open_segment


def test_a_step_is_a_span_that_counts_its_valid_rows(worker: Start, prefix: str) -> None:
    got = record(
        worker,
        prefix,
        """
        with brick.step(17, kind="decode", rows=32, valid=30):
            with brick.span("attention"): pass
        with brick.step("request-9", kind="prefill", rows=512): pass
        with brick.step(None): pass
        """,
    )
    rows = summaries(got)
    assert {path: (row["count"], row["elements"], row["bytes"]) for path, row in rows.items()} == {
        ("decode",): (1, 30, 0),
        ("decode", "attention"): (1, 0, 0),
        ("prefill",): (1, 512, 0),
        ("step",): (1, 0, 0),
    }
    kinds = {got.name(path.name): got.category(path.name) for path in got.paths if path is not None}
    assert (kinds["decode"], kinds["step"], kinds["attention"]) == ("step", "step", "other")


@pytest.mark.parametrize(
    ("amounts", "elements", "wrong"),
    [("rows=8, valid=9", 8, 1), ("rows=-1", 0, 1), ("rows=8, valid=-1", 0, 1), ("valid=3", 0, 1), ("rows='x'", 0, 1)],
)
def test_invalid_rows_are_counted_and_the_step_kept(
    worker: Start, prefix: str, amounts: str, elements: int, wrong: int
) -> None:
    got = record(worker, prefix, f"with brick.step(1, {amounts}): pass")
    assert [(row["count"], row["elements"]) for row in summaries(got).values()] == [(1, elements)]
    assert [lane["amounts"] for _, lane, _ in got.lanes] == [wrong]


@pytest.mark.ci
def test_spans_inside_a_step_inherit_its_key_and_the_ring_has_its_rows(worker: Start, prefix: str) -> None:
    process = worker(
        """
        brick.init()
        with brick.span("first"): pass
        pause()
        with brick.step(17, kind="decode", rows=32, valid=30):
            with brick.span("attention"): pass
            with brick.span("own", step=5): pass
            brick.brick("kernel").record(1500)
        pause()
        """
    )
    process.paused()
    with open(SHM / reading(prefix).file, "r+b") as file:
        os.pwrite(file.fileno(), struct.pack("<I", _reader.CONTROL_SPANS), 4096)
    process.go()
    process.paused()
    command = [sys.executable, "-P", "-m", "brickd", "inspect", "--json"]
    shown = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    seen = [
        (span["brick"], span["kind"], int(span["step"], 16), span["elements"], span["rows"])
        for span in shown["lanes"][0]["spans"]
    ]
    assert seen == [
        ("attention", "span", 17, 0, None),
        ("own", "span", 5, 0, None),
        ("kernel", "given", 17, 0, None),
        ("decode", "step", 17, 30, 32),
    ]
    assert shown["lanes"][0]["spans"][2]["duration_ns"] == 1500


def test_a_given_time_is_counted_exactly_and_subtracted_from_its_parent(worker: Start, prefix: str) -> None:
    got = record(
        worker,
        prefix,
        """
        import numpy
        kernel = brick.brick("kernel", category="ffn")
        with brick.span("forward"):
            for ns in (numpy.float32(1000), numpy.int64(3000), 2000.4): kernel.record(ns, elements=7, bytes=9)
        with brick.span("short"): kernel.record(10**12)
        kernel.record(5)
        """,
    )
    rows = summaries(got)
    given = rows[("forward", "kernel")]
    assert (given["count"], given["total_ns"], given["self_ns"]) == (3, 6000, 6000)
    assert (given["min_ns"], given["max_ns"], given["elements"], given["bytes"]) == (1000, 3000, 21, 27)
    forward = rows[("forward",)]
    assert forward["self_ns"] == pytest.approx(max(forward["total_ns"] - 6000, 0))
    assert rows[("short",)]["self_ns"] == 0, "the given times exceed the span, so no time is left"
    assert (rows[("short", "kernel")]["total_ns"], rows[("kernel",)]["total_ns"]) == (10**12, 5)
    assert spans(got) == {"begun": 7, "summarized": 7}


@pytest.mark.parametrize("elapsed", ["-1", "-0.6", "float('nan')", "float('inf')", "2**49", "2**64", "'x'", "None"])
def test_an_impossible_given_time_is_rejected_and_counted(worker: Start, prefix: str, elapsed: str) -> None:
    got = record(worker, prefix, f'brick.brick("kernel").record({elapsed})\nwith brick.span("good"): pass')
    assert counts(got) == {("good",): 1}
    assert spans(got) == {"begun": 2, "summarized": 1, "rejected": 1}
    (reported,) = losses(got, ledger_of(got))
    assert "1 span not recorded" in reported.text
    assert "a given time is invalid" in reported.text


def in_the_ring(worker: Start, prefix: str, program: str) -> list[dict[str, Any]]:
    """Return the spans that a program records in the span ring, in the order in which they end."""
    process = worker(f"brick.init()\npause()\n{textwrap.dedent(program)}\npause()")
    process.paused()
    with open_segment(reading(prefix).file, os.O_RDWR) as segment:
        segment.command(_reader.CONTROL_SPANS)
        process.go()
        process.paused()
        found = rows(dtypes.span_records(segment.ring(0, events=False)[1]))
    process.go()
    assert process.end() == 0
    return found


def test_the_key_of_a_text_step_is_its_fnv_1a_hash(worker: Start, prefix: str) -> None:
    program = """
    for key in ("", "a", "foobar", "request-9", "Anfrage \u00e4", 0, 7, -1, 2**64 - 1, 2**64 + 5):
        with brick.step(key): pass
    with brick.span("b", step="foobar"): pass
    """
    assert [f"{each['step']:016x}" for each in in_the_ring(worker, prefix, program)] == [
        *("cbf29ce484222325", "af63dc4c8601ec8c", "85944171f73967e8", "d8186151be9469fc", "e2c6eb70cfb98dd4"),
        *("0000000000000000", "0000000000000007", "ffffffffffffffff", "ffffffffffffffff", "0000000000000005"),
        "85944171f73967e8",
    ]


def test_a_span_keeps_nothing_of_another_that_used_its_memory(worker: Start, prefix: str) -> None:
    program = """
    b = brick.brick("b")
    with brick.step(17):
        with b(step=5, elements=3, bytes=4): pass
        with b(elements=6): pass
        with brick.step(9, rows=8, valid=7): pass
        with b(bytes=2): pass
        with b(): pass
    """
    found = in_the_ring(worker, prefix, program)
    span, step = _reader.KIND_SPAN, _reader.KIND_STEP
    assert [(each["kind"], each["step"], each["elements"], each["bytes"]) for each in found] == [
        *((span, 5, 3, 4), (span, 17, 6, 0), (step, 9, 8, 7), (span, 17, 0, 2), (span, 17, 0, 0)),
        (step, 17, 0, 0),
    ]


@pytest.mark.parametrize(
    ("elapsed", "total"),
    [("0.49", 0), ("0.5", 1), ("1.5", 2), ("2.5", 3), ("999.99", 1000), ("2.0**48", 2**48), ("2**48", 2**48)],
)
def test_a_given_time_is_rounded_half_up_to_nanoseconds(worker: Start, prefix: str, elapsed: str, total: int) -> None:
    got = record(worker, prefix, f'brick.brick("kernel").record({elapsed})')
    assert [(row["count"], row["total_ns"]) for row in summaries(got).values()] == [(1, total)]


@pytest.mark.parametrize("elapsed", ["2**48 + 1", "2.0**48 + 1", "2.0**63", "1e300"])
def test_a_given_time_above_the_maximum_is_rejected(worker: Start, prefix: str, elapsed: str) -> None:
    got = record(worker, prefix, f'brick.brick("kernel").record({elapsed})')
    assert (counts(got), spans(got)) == ({}, {"begun": 1, "rejected": 1})


def test_the_highest_layer_is_16777214(worker: Start, prefix: str) -> None:
    got = record(
        worker,
        prefix,
        """
        b = brick.brick("b")
        for number in (16_777_214, 16_777_215, -1):
            with brick.layer(number), b: pass
        """,
    )
    assert counts(got) == {("b[16777214]",): 1, ("b",): 2}
    assert [lane["amounts"] for _, lane, _ in got.lanes] == [2]


def test_a_given_time_without_its_own_path_is_rejected(worker: Start, prefix: str) -> None:
    got = record(
        worker,
        prefix,
        """
        brick.init(paths=64)
        for n in range(100):
            with brick.span(f"span {n}"): pass
        brick.brick("kernel").record(10**12)
        """,
    )
    assert spans(got) == {"begun": 101, "summarized": 100, "rejected": 1}
    assert summaries(got)[("other",)]["max_ns"] < 10**12


def test_a_given_time_while_disabled_is_not_recorded_and_disturbs_no_end(worker: Start, prefix: str) -> None:
    got = record(
        worker,
        prefix,
        """
        kernel, b = brick.brick("kernel"), brick.brick("b")
        with b:
            brick.disable()
            kernel.record(1)
            with b: kernel.record(1)
            brick.enable()
            kernel.record(2)
        """,
    )
    assert counts(got) == {("b",): 1, ("b", "kernel"): 1}
    assert spans(got) == {"begun": 2, "summarized": 2}


def test_the_innermost_layer_counts_and_then_the_outer_one_again(worker: Start, prefix: str) -> None:
    got = record(
        worker,
        prefix,
        """
        b = brick.brick("b")
        with brick.layer(1):
            with b: pass
            with brick.layer(2):
                with b:
                    with brick.layer(3), b: pass
                with brick.layer(2), b: pass
            with b: pass
        with b: pass
        """,
    )
    assert counts(got) == {("b[1]",): 2, ("b[2]",): 2, ("b[2]", "b[3]"): 1, ("b",): 1}


@pytest.mark.parametrize("call", ["b.stop(1, 2, 3, 4)", "b.stop(1, elements=2)", "b.stop(1, 2, bytes=3)", "b.stop(x=1)",
                                  "b.record()", "b.record(1, 2, 3, 4, 5)", "b.record(1, 2, elements=3)",
                                  "brick.step()", "brick.step(1, 2)", "brick.step(1, wrong=2)"])  # fmt: skip
def test_an_impossible_call_is_a_type_error_and_records_nothing(worker: Start, prefix: str, call: str) -> None:
    process = worker(
        f"""
        b = brick.brick("b")
        try: {call}
        except TypeError as error: report(str(error))
        """
    )
    assert process.next_report()
