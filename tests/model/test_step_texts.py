"""The texts of steps that a daemon keeps: which ones, how many, and how a step is shown."""

from __future__ import annotations

import struct

import pytest

from brickd.model.step_texts import SERVICES_MAX, TEXTS_MAX, StepTexts
from brickd.query.queries import step_number
from brickd.shm import _reader

REQUEST = step_number("req-1")


def record(text: bytes, *, length: int | None = None, slots: int = 1, kind: int = _reader.KIND_STEP_TEXT) -> bytes:
    return struct.pack("<QIHH48s", 1, len(text) if length is None else length, slots, kind, text)


def kept(*texts: bytes) -> StepTexts:
    found = StepTexts()
    found.take("api", texts)
    return found


def test_a_text_is_shown_for_its_own_hash_only() -> None:
    texts = kept(b"req-1")
    assert texts.members(REQUEST) == {"step": f"{REQUEST:016x}", "step_text": "req-1"}
    assert texts.members(REQUEST + 1) == {"step": f"{REQUEST + 1:016x}", "step_text": None}
    assert texts.members(None) == {"step": None, "step_text": None}
    assert (texts.name(REQUEST), texts.name(17)) == ("req-1", "17")


@pytest.mark.parametrize("text", [b"", b"17", b"-1", b"00000000000000ff", b"\xff\xfe", b"req\xc3"])
def test_a_text_that_is_a_number_or_invalid_is_not_kept(text: bytes) -> None:
    assert kept(text).document() in ({}, {"api": []})
    assert kept(text).text(_reader.source_hash(text)) is None


def test_of_too_many_texts_the_newest_are_kept() -> None:
    texts = kept(*(b"req-%d" % number for number in range(10_000)))
    assert [len(each) for each in texts.document().values()] == [TEXTS_MAX]
    assert texts.text(step_number("req-9999")) == "req-9999"
    assert texts.text(step_number(f"req-{10_000 - TEXTS_MAX}")) is not None
    assert texts.text(step_number(f"req-{9_999 - TEXTS_MAX}")) is None


def test_a_text_that_is_sent_again_is_among_the_newest() -> None:
    texts = kept(b"first", *(b"req-%d" % number for number in range(TEXTS_MAX - 1)), b"first", b"another")
    assert (texts.text(step_number("first")), texts.text(step_number("req-0"))) == ("first", None)


def test_a_service_drops_only_its_own_texts_and_too_many_services_are_refused() -> None:
    texts = kept(b"req-1")
    texts.take("flood", (b"f%d" % number for number in range(2 * TEXTS_MAX)))
    for number in range(2 * SERVICES_MAX):
        texts.take(f"service {number}", [b"s%d" % number])
    assert (texts.text(REQUEST), len(texts.document())) == ("req-1", SERVICES_MAX)
    texts.take("api", [b"req-2"])
    assert texts.text(step_number("req-2")) == "req-2"
    texts.keep({"service 0"})
    assert texts.document() == {"service 0": ["s0"]}


def test_a_copy_is_independent() -> None:
    texts = kept(b"req-1")
    copy = texts.copy()
    texts.take("api", [b"req-2"])
    assert (copy.document(), texts.document()) == ({"api": ["req-1"]}, {"api": ["req-1", "req-2"]})


def test_a_text_is_an_argument_only_if_a_terminal_shows_it() -> None:
    texts = kept(b"req 1; rm", b"\x1b[31mred")
    assert texts.argument(step_number("req 1; rm")) == "'req 1; rm'"
    assert texts.argument(step_number("\x1b[31mred")) == f"{step_number(chr(27) + '[31mred'):016x}"


def test_texts_are_found_among_other_records() -> None:
    longest = b"x" * 48
    other = struct.pack("<QIHH6Q", 1, 0, 3, _reader.KIND_CHECKED, *[0] * 6) + record(b"payload") * 2
    assert _reader.step_texts(record(b"req-1") + other + record(longest)) == [b"req-1", longest]


@pytest.mark.parametrize(
    "broken",
    [
        record(b"req-1", length=0),
        record(b"req-1", length=49),
        record(b"req-1", length=2**32 - 1),
        record(b"req-1", slots=2) + record(b""),
        record(b"req-1", slots=0),
        record(b"req-1", kind=_reader.KIND_SOURCE),
        record(b"req-1")[:-1],
        b"",
    ],
)
def test_an_invalid_record_has_no_text(broken: bytes) -> None:
    assert _reader.step_texts(broken) == []
