"""Waiting deferred starts are the same after encoding and decoding, whatever was changed before.

An invalid text is refused.
"""

from __future__ import annotations

from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brickd.model.deferred_waiting import Start, WaitingStarts
from brickd.shm import _reader

WORD, PATH = st.integers(0, 2**64 - 1), st.integers(0, _reader.NUMBERS_MAX - 1)
STARTS = st.lists(st.builds(Start, WORD, WORD, PATH, WORD, WORD, st.booleans()), max_size=8)
# The changes between two encodings: some starts are added, and some are removed.
STEPS = st.lists(st.tuples(STARTS, st.sets(st.integers(0, 20))), max_size=5)


@given(STEPS)
def test_starts_written_in_parts_equal_starts_written_at_once(steps: list[tuple[list[Start], set[int]]]) -> None:
    waiting, wanted = WaitingStarts(), list[Start]()
    for come, go in steps:
        waiting.add(*come)
        wanted += come
        gone = [each for number, each in enumerate(wanted) if number in go]
        numbers = iter(range(len(wanted)))
        assert waiting.take(lambda _, numbers=numbers, go=go: next(numbers) in go) == gone  # type: ignore[misc]
        wanted = [each for number, each in enumerate(wanted) if number not in go]
        assert (list(waiting), len(waiting)) == (wanted, len(wanted))
        assert waiting.text() == WaitingStarts(wanted).text()
        back = WaitingStarts.of(waiting.text(), waiting.marks())
        assert list(back) == wanted
        assert (back.text(), back.marks()) == (waiting.text(), waiting.marks())


def test_without_marks_no_start_is_measured() -> None:
    text = WaitingStarts([Start(1, 2, 3, 4, 5, measured=True)]).text()
    assert list(WaitingStarts.of(text, "")) == [Start(1, 2, 3, 4, 5)]


@pytest.mark.parametrize(
    ("text", "marks"),
    [
        (b64encode(bytes(35)).decode(), ""),  # the data of an incomplete row
        (b64encode(bytes(36)).decode() + "A", ""),
        ("not a row", ""),
        (b64encode(bytes(36)).decode(), "AAA="),  # marks for two rows, but only one row of data
        (b64encode(bytes(36)).decode(), "A"),
    ],
)
def test_inconsistent_starts_are_refused(text: str, marks: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        WaitingStarts.of(text, marks)
