"""The text of a step: when a worker records it."""

from __future__ import annotations

import pytest
from c_calls import c_calls
from conftest import WRITER, reading, readings
from faults import ALERT, Compile, Start
from recorded import events

from brickd.shm import _reader
from brickd.shm.segment_copy import Reading

WRITERS = (("writer", ()), ("alert_writer", ALERT))
PREPARED = """
from array import array
def check(step=None, **how): brick.checksum("mlp", array("f", [1]), step=step, **how)
"""


def left(worker: Start, prefix: str, source: str, **environment: str) -> Reading:
    """Return the segment that a program leaves."""
    worker(f"{PREPARED}\n{source}\npause()", **environment).paused()
    return reading(prefix)


def told(of: Reading) -> list[str]:
    """Return the texts in the rings, each after the checksum that it follows."""
    return [bytes(each["text"][: each["length"]]).decode() for each in events(of) if each["kind"] == "step_text"]


def test_a_text_is_recorded_once_after_the_first_checksum_of_its_step(worker: Start, prefix: str) -> None:
    got = left(
        worker,
        prefix,
        """
with brick.step("req-1"):
    check(), check()
check("req-2"), check("req-1"), check("req-2"), check(17), check()
""",
    )
    kinds = "".join("T" if each["kind"] == "step_text" else "c" for each in events(got))
    assert (told(got), kinds) == (["req-1", "req-2"], "cTccTcccc")
    assert [each["sequence"] for each in events(got)] == [*range(1, 10)]


def test_a_step_without_a_checksum_has_no_text(worker: Start, prefix: str) -> None:
    got = left(
        worker,
        prefix,
        """
with brick.step("spans"), brick.span("attention", step="own"): pass
brick.brick("kernel").defer(step="deferred")
""",
    )
    assert told(got) == []


def test_a_step_that_is_not_selected_has_no_text(worker: Start, prefix: str) -> None:
    program = 'for number in range(200): check(f"req-{number}")\n'
    got = left(worker, prefix, program, BRICKD_FINGERPRINTS="1/8")
    checked = [each for each in events(got) if each["kind"] == "checked"]
    assert 0 < len(told(got)) == len(checked) < 100


def test_only_texts_of_1_to_48_bytes_are_recorded(worker: Start, prefix: str) -> None:
    longest = "ä" * 24
    got = left(worker, prefix, f'for step in ("", "{longest}", "{longest}x", "x"): check(step)\n')
    assert told(got) == [longest, "x"]
    keys = [each["step"] for each in events(got) if each["kind"] == "checked"]
    assert keys[2] == _reader.source_hash(f"{longest}x".encode()), "a longer text is still a step of its own"


def test_each_thread_records_the_text(worker: Start, prefix: str) -> None:
    got = left(
        worker,
        prefix,
        """
from threading import Thread
check("req-1")
thread = Thread(target=check, args=("req-1",))
thread.start(), thread.join()
""",
    )
    assert (told(got), len(got.lanes)) == (["req-1", "req-1"], 2)


def test_a_text_leaves_half_of_the_ring_free(worker: Start, prefix: str) -> None:
    program = 'for number in range(10): check(f"req-{number}")\n'
    got = left(worker, prefix, program, BRICKD_EVENTS="64")
    records = events(got)
    used = 0
    for before, each in enumerate(records):
        assert each["kind"] != "step_text" or used < 32, before
        used += each["slots"]
    assert 5 < len(told(got)) < 10
    assert sum(sum(lane["event_dropped"]) for _, lane, _ in got.lanes) == 0
    assert sum(each["kind"] == "checked" for each in records) == 10


@pytest.mark.parametrize(("before", "texts"), [(2, 6), (3, 5)])
def test_a_text_is_recorded_if_more_than_half_of_the_ring_is_free(
    worker: Start, prefix: str, before: int, texts: int
) -> None:
    """The sixth text finds 33 or 32 free slots of 64."""
    program = f'for _ in range({before}): brick.brick("work").defer()\nfor n in range(6): check(f"req-{{n}}")\n'
    assert len(told(left(worker, prefix, program, BRICKD_EVENTS="64"))) == texts


@pytest.mark.ci
def test_a_segment_that_replaces_a_lost_one_gets_the_text_again(worker: Start, compiled: Compile, prefix: str) -> None:
    usual, alert = (str(compiled(f"{name}.so", WRITER, "-shared", "-fPIC", *how)) for name, how in WRITERS)
    process = worker(
        f"""{c_calls(compiled).replace(usual, alert)}
w.brick_init(None)
w.brick_step_named.restype = c_uint64
w.brick_segment_name.restype = ctypes.c_char_p
step, kernel = w.brick_step_named(b"req-1", ctypes.c_size_t(5)), name("kernel")
at = At(step=ctypes.pointer(c_uint64(step)))
checksum(kernel, at)
lost = w.brick_segment_name()
os.unlink("/dev/shm/" + lost.decode())
while w.brick_segment_name() == lost: checksum(kernel, at)
checksum(kernel, at)
pause()
"""
    )
    process.paused()
    assert told(reading(prefix)) == ["req-1"]


def test_a_step_that_was_created_long_ago_has_a_text_unless_it_was_overwritten(worker: Start, prefix: str) -> None:
    got = left(
        worker,
        prefix,
        """
step = brick.step("early")
for number in range(10_000): brick.step(f"req-{number}")
with step: check()
again = [brick.step(f"req-{number}") for number in range(3)]
with again[0]: check()
""",
    )
    assert told(got) == ["req-0"]


def test_a_forked_child_records_the_text_in_its_own_segment(worker: Start, prefix: str) -> None:
    process = worker(
        f"""{PREPARED}
import os
check("req-1")
if not os.fork():
    check("req-1")
pause()
"""
    )
    process.paused()
    process.paused()
    assert [told(each) for each in readings(prefix)] == [["req-1"], ["req-1"]]


def test_native_code_gets_the_key_of_a_text_and_rows_record_the_text(
    worker: Start, compiled: Compile, prefix: str
) -> None:
    process = worker(
        f"""{c_calls(compiled)}
import numpy as np
w.brick_init(None)
w.brick_step_named.restype = c_uint64
keys = [w.brick_step_named(text, ctypes.c_size_t(len(text))) for text in (b"req-1", b"", b"x" * 49)]
kernel, batch = name("kernel"), of_array(np.ones((2, 4), "f"))
recorded_rows(kernel, batch, batch, At(step=ctypes.pointer(c_uint64(keys[0]))))
report(keys)
pause()
"""
    )
    assert process.next_report() == [_reader.source_hash(text) for text in (b"req-1", b"", b"x" * 49)]
    process.paused()
    got = reading(prefix)
    assert ([each["kind"] for each in events(got)], told(got)) == (["checked", "step_text"], ["req-1"])
