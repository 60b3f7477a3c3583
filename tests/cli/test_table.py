"""The tables that verbs print, and the units in them."""

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brickd.base import escape, units
from brickd.screens import table
from brickd.screens.table import Column, EntryTable, Figure

CELLS = st.text(st.one_of(st.characters(codec=None), st.sampled_from("ab 模\x1b\n\u0301\u202e")), max_size=40)
NUMBERS = st.one_of(st.integers(-(10**30), 10**30), st.floats())


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[Column], list[list[str]]]:
    column = st.builds(
        Column, CELLS, st.sampled_from(["left", "right"]), st.integers(0, 3), st.sampled_from(["begin", "end"])
    )
    columns = draw(st.lists(column, min_size=1, max_size=6))
    row = st.lists(CELLS, min_size=len(columns), max_size=len(columns))
    return columns, draw(st.lists(row, max_size=5))


def test_columns_line_up_by_display_width() -> None:
    columns = [Column("BRICK"), Column("MEAN", "right"), Column("NOTE")]
    rows = [["rope", "3.1 ms", "ok"], ["模型", "17.0 ms", ""]]
    assert table.lines(columns, rows) == [
        "BRICK     MEAN  NOTE",
        "rope    3.1 ms  ok",
        "模型   17.0 ms",
    ]


def test_a_cell_with_a_newline_stays_one_line() -> None:
    assert table.lines([Column("WORKER")], [["api/0\n\x1b[2J"]]) == ["WORKER", r"api/0\n\x1b[2J"]


@given(st.lists(CELLS, max_size=5), st.none() | st.integers(4, 80))
def test_each_entry_of_a_table_has_exactly_one_line_after_the_titles(texts: list[str], width: int | None) -> None:
    figures = (Figure(Column("#"), "number", str), Figure(Column("\n"), "text", str))
    shown = EntryTable(figures, [{"number": number, "text": text} for number, text in enumerate(texts)])
    lines = shown.lines(width)
    assert [line[:1] for line in lines] == ["#", *map(str, range(len(texts)))]
    assert width is None or max(map(escape.width, lines)) <= width


def test_the_widest_text_is_shortened_and_numbers_stay_whole() -> None:
    columns = [Column("WORKER"), Column("BRICK"), Column("TOTAL", "right")]
    rows = [["api/0", "moe_gemm_grouped_fp8_blockwise", "1,234,567"]]
    assert table.lines(columns, rows, 30) == [
        "WORKER  BRICK            TOTAL",
        "api/0   moe_gemm_g…  1,234,567",
    ]


def test_a_worker_keeps_its_number_if_its_name_is_cut() -> None:
    names = [f"{'model-server-of-a-long-name'}/{number}" for number in (7, 12)]
    assert table.lines([table.WORKER, Column("BRICK")], [[each, "gemm"] for each in names], 20) == [
        "WORKER         BRICK",
        "model-…name/7  gemm",
        "model-…ame/12  gemm",
    ]


def test_optional_columns_are_dropped_before_text_is_shortened() -> None:
    columns = [Column("WORKER"), Column("AGE", "right", 2), Column("SPANS", "right"), Column("MEMORY", "right", 1)]
    rows = [["a worker of a long name", "17.0 ms", "5", "220K"]]
    titles = {width: table.lines(columns, rows, width)[0].split() for width in (40, 39, 31, 30)}
    assert titles == {
        40: ["WORKER", "AGE", "SPANS", "MEMORY"],
        39: ["WORKER", "SPANS", "MEMORY"],
        31: ["WORKER", "SPANS", "MEMORY"],
        30: ["WORKER", "SPANS"],
    }


def test_a_row_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="zip"):
        table.lines([Column("A"), Column("B")], [["only one"]])


@pytest.mark.ci
@given(tables(), st.integers(0, 60))
def test_no_line_is_wider_than_the_limit(drawn: tuple[list[Column], list[list[str]]], limit: int) -> None:
    columns, rows = drawn
    lines = table.lines(columns, rows, limit)
    assert len(lines) == len(rows) + 1
    assert max(map(escape.width, lines)) <= limit


@given(tables())
def test_without_a_width_limit_every_cell_is_whole(drawn: tuple[list[Column], list[list[str]]]) -> None:
    columns, rows = drawn
    for line, row in zip(table.lines(columns, rows)[1:], rows, strict=True):
        assert all(escape.text(cell).rstrip() in line for cell in row)


@pytest.mark.parametrize("write", [units.duration, units.count, units.size, units.percent])
@pytest.mark.parametrize("value", [None, math.nan, math.inf, -math.inf])
def test_a_missing_number_is_a_dash(write: Callable[[units.Number], str], value: float | None) -> None:
    assert write(value) == "-"


@given(NUMBERS.filter(math.isfinite))
def test_a_value_and_its_negative_differ_only_in_the_sign(number: float) -> None:
    for write in (units.duration, units.count, units.size, units.percent):
        one, other = sorted((write(number), write(-number)), key=lambda written: written.startswith("-"))
        assert not one.startswith("-")
        assert other in (one, "-" + one)
        assert other not in ("-0", "-0B", "-0 ns", "-0 %")


@given(st.integers(0, 10**15), st.integers(0, 10**15))
def test_a_longer_duration_is_never_formatted_as_a_shorter_one(one_ns: int, other_ns: int) -> None:
    scale = {"ns": 1.0, "µs": 1e3, "ms": 1e6, "s": 1e9, "min": 60e9, "h": 3600e9, "d": 86400e9}
    short, long = (units.duration(ns).replace(",", "").split() for ns in sorted((one_ns, other_ns)))
    assert float(short[0]) * scale[short[1]] <= float(long[0]) * scale[long[1]] * (1 + 1e-12)


@given(st.integers(0, 10**18))
def test_a_formatted_duration_is_within_half_of_its_last_digit(ns: int) -> None:
    scale = {"ns": 1, "µs": 10**3, "ms": 10**6, "s": 10**9, "min": 60 * 10**9, "h": 3600 * 10**9, "d": 86400 * 10**9}
    figure, unit = units.duration(ns).replace(",", "").split()
    tenths = int(figure.replace(".", "")) * (1 if "." in figure else 10)
    last = 1 if "." in figure else 10
    assert abs(20 * ns - 2 * tenths * scale[unit]) <= last * scale[unit]
