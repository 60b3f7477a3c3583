"""A string from a worker cannot affect a terminal or a spreadsheet."""

import csv
import io
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brickd.base import escape

# All code points, including lone surrogates; those that attacks use are drawn often.
ATTACKS = (
    "\x00\x07\x08\t\n\r\x1b\x7f\x85\x9b\xa0\xad\ud800\udc80"
    "\u034f\u115f\u200b\u200d\u200f\u2028\u202e\u2066\u3164\ufe0f\ufeff\U000e0041\U000e0100"
)
HOSTILE = st.text(st.one_of(st.sampled_from(ATTACKS + "=+-@\\\"',;ab模é\u0301"), st.characters(codec=None)))


def test_a_terminal_escape_in_a_name_is_escaped() -> None:
    assert escape.text("\x1b]0;owned\x07rope\x9b2J") == r"\x1b]0;owned\x07rope\x9b2J"


def test_a_bidi_override_is_escaped() -> None:
    assert escape.text("a\u202eb\u2066c\u200fd") == r"a\u202eb\u2066c\u200fd"


def test_a_newline_in_a_name_starts_no_second_line() -> None:
    assert escape.text("rope\r\n! all is well\t\u2028") == r"rope\r\n! all is well\t\u2028"


def test_a_lone_surrogate_is_shown_and_can_be_encoded() -> None:
    assert escape.text("x\udc80y").encode() == rb"x\udc80y"


@pytest.mark.parametrize(
    "char", "\u200b\u200d\u2060\ufeff\u00ad\u034f\u3164\uffa0\ufe0f\U000e0100\U000e0041\u180e\u17b4"
)
def test_two_names_never_differ_only_invisibly(char: str) -> None:
    assert escape.text("api" + char) == "api" + char.encode("unicode_escape").decode()


def test_ordinary_unicode_is_unchanged() -> None:
    name = "größe 模型 αβγ नमस्ते 🙂 e\u0301 µs …"
    assert escape.text(name) == name


def test_the_width_is_counted_in_terminal_cells() -> None:
    assert [escape.width(name) for name in ("", "rope", "模型", "e\u0301", "🙂", "ｱ")] == [0, 4, 4, 1, 2, 1]


def test_shortened_text_ends_with_an_ellipsis() -> None:
    assert [escape.text("rope_neox", limit) for limit in (9, 8, 2, 1, 0)] == ["rope_neox", "rope_ne…", "r…", "…", ""]


def test_shortening_splits_neither_an_escape_nor_a_wide_character() -> None:
    assert escape.text("ab\x1bcd", 6) == "ab…"
    assert escape.text("模型模型", 4) == "模…"


@given(HOSTILE)
def test_shown_text_has_no_control_or_invisible_character(value: str) -> None:
    shown = escape.text(value)
    assert not {unicodedata.category(char) for char in shown} & {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
    assert not set(shown) & set(ATTACKS)
    assert escape.text(shown) == shown


@given(HOSTILE, st.integers(0, 30))
def test_shortened_text_fits_the_limit_and_keeps_all_that_fits(value: str, limit: int) -> None:
    whole, cut = escape.text(value), escape.text(value, limit)
    assert escape.width(cut) <= limit
    assert cut == whole or (escape.width(whole) > limit and whole.startswith(cut.removesuffix("…")))


@pytest.mark.parametrize("value", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "＝1", "－1"])
def test_a_formula_in_a_csv_cell_is_text(value: str) -> None:
    assert escape.csv_cell(value) == "'" + escape.text(value)


@given(st.lists(HOSTILE, min_size=1, max_size=5))
def test_a_csv_round_trip_keeps_cells_and_defuses_formulas(values: list[str]) -> None:
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerow([escape.csv_cell(value) for value in values])
    file.seek(0)
    (row,) = csv.reader(file)
    assert [cell.removeprefix("'") for cell in row] == [escape.text(value).removeprefix("'") for value in values]
    assert not [cell for cell in row if cell[:1] in tuple("=+-@\t\r")]
