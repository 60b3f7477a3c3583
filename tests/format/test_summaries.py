"""Summaries to which spans and other summaries are added, row by row; the results are the same as in plain numpy."""

from __future__ import annotations

import array

import dtypes
import numpy as np
import pytest
from forge import U64
from hypothesis import given
from hypothesis import strategies as st
from rings import folded, spans

from brickd.shm import _reader

DURATION = st.integers(0, 2**48) | st.sampled_from([0, 31, 32, 38, 2**36])
SPAN = st.fixed_dictionaries(
    {"path": st.integers(0, 5), "duration": DURATION, "elements": st.integers(0, 2**40), "bytes": st.integers(0, 2**40)}
)


def rows(*numbers: int) -> bytes:
    return array.array("i", numbers).tobytes()


def of(summaries: _reader.Summaries) -> dtypes.Array:
    return dtypes.summaries(summaries.tobytes())


@pytest.mark.ci
@given(st.lists(SPAN, max_size=40))
def test_spans_are_added_as_their_own_thread_adds_them(each: list[dict[str, int]]) -> None:
    ours = _reader.Summaries()
    for span in each:
        ours.add(span["path"], span["duration"], span["elements"], span["bytes"])
    wanted = folded(spans(*each))
    assert len(ours) == len(wanted)
    np.testing.assert_array_equal(of(ours), wanted)


@pytest.mark.ci
@given(st.lists(SPAN, max_size=20), st.lists(SPAN, max_size=20), st.permutations(range(-1, 7)))
def test_merging_adds_all_spans_of_both(
    ours: list[dict[str, int]], others: list[dict[str, int]], order: list[int]
) -> None:
    merged = _reader.Summaries(folded(spans(*ours)).tobytes())
    others_rows = folded(spans(*others))
    merged.merge(others_rows.tobytes(), rows(*order[: len(others_rows)]))
    both = ours + [span | {"path": order[span["path"]]} for span in others if order[span["path"]] >= 0]
    wanted = folded(spans(*both))
    for name in wanted.dtype.names or ():
        got = of(merged)[name][: len(wanted)]
        if name == "squares":  # floating-point numbers that are added in another order
            np.testing.assert_allclose(got, wanted[name], rtol=1e-12)
        else:
            np.testing.assert_array_equal(got, wanted[name], err_msg=name)
    assert not of(merged)["count"][len(wanted) :].any()


@given(st.integers(0, 2**48), st.integers(0, 2**48))
def test_flops_are_merged_and_subtracted_like_other_sums(one: int, other: int) -> None:
    def summary(flops: int) -> bytes:
        entry = folded(spans({"path": 0, "duration": 5, "elements": 1, "bytes": 1}))
        entry["reserved"][0, 0] = np.float64(flops).view(np.uint64)
        return entry.tobytes()

    both = _reader.Summaries(summary(one))
    both.merge(summary(other), rows(0))
    assert of(both)["reserved"][0, 0].view(np.float64) == one + other
    both.subtract(summary(one), rows(0))
    assert of(both)["reserved"][0, 0].view(np.float64) == other


@pytest.mark.ci
@given(st.lists(SPAN, max_size=30), st.lists(SPAN, max_size=30))
def test_subtracting_earlier_totals_gives_the_increase(
    before: list[dict[str, int]], later: list[dict[str, int]]
) -> None:
    then, wanted = folded(spans(*before)), folded(spans(*later))
    since = _reader.Summaries(folded(spans(*before, *later)).tobytes())
    since.subtract(then.tobytes(), rows(*range(len(then))))
    got = of(since)
    assert not got["count"][len(wanted) :].any()
    got = got[: len(wanted)]
    for name in ("count", "total", "child", "again", "elements", "bytes", "histogram"):
        np.testing.assert_array_equal(got[name], wanted[name], err_msg=name)
    scale = float(folded(spans(*before, *later))["squares"].max(initial=1))
    np.testing.assert_allclose(got["squares"], wanted["squares"], atol=1e-12 * scale)
    some = wanted["count"] > 0
    both = folded(spans(*before, *later))[: len(wanted)]
    for at, (least, most) in enumerate(((both["min"], wanted["min"]), (wanted["max"], both["max"]))):
        bound = got[("min", "max")[at]][some]
        assert ((least[some] <= bound) & (bound <= most[some])).all(), (
            "the bound is not wider than the bound over all readings"
        )
    # a percentile may be one bucket off; the last bucket has no upper end
    width = np.maximum(wanted["max"][some] * 1.2, 38)
    assert (got["max"][some] <= np.where(wanted["histogram"][some, -1] > 0, 2**48, width)).all()
    assert (wanted["min"][some] <= np.maximum(got["min"][some] * 1.2, 38)).all() or wanted["histogram"][some, -1].any()


@given(st.lists(st.integers(1, 2**40), min_size=6, max_size=6), st.lists(st.integers(1, 2**40), min_size=6, max_size=6))
def test_each_sum_is_subtracted_separately_and_never_below_zero(ours: list[int], then: list[int]) -> None:
    names = ("total", "child", "again", "elements", "bytes", "squares")
    one, other = np.zeros(1, dtypes.dtype("summary")), np.zeros(1, dtypes.dtype("summary"))
    for name, whole, before in zip(names, ours, then, strict=True):
        one[name], other[name] = whole, before
    one["count"], other["count"] = 5, 2
    since = _reader.Summaries(one.tobytes())
    since.subtract(other.tobytes(), rows(0))
    got = of(since)
    assert [got[name][0] for name in names] == [max(0, a - b) for a, b in zip(ours, then, strict=True)]
    assert got["count"][0] == 3
    since.subtract(np.zeros(1, dtypes.dtype("summary")).tobytes(), rows(0))
    assert of(since).tobytes() == got.tobytes()


def test_totals_that_went_back_leave_nothing() -> None:
    then = folded(spans(*[{"path": 0, "duration": 5, "elements": 1, "bytes": 1}] * 3))
    since = _reader.Summaries(folded(spans({"path": 0, "duration": 5, "elements": 9, "bytes": 9})).tobytes())
    since.subtract(then.tobytes(), rows(0))
    assert not any(since.tobytes())


def test_missing_rows_subtract_nothing() -> None:
    then = folded(spans({"path": 0, "duration": 5, "elements": 1, "bytes": 1}))
    since = _reader.Summaries(then.tobytes())
    since.subtract(then.tobytes(), rows(-1))
    since.subtract(then.tobytes(), rows(7))
    assert of(since)["count"][0] == 1
    with pytest.raises(ValueError, match="need the same number of rows"):
        since.subtract(then.tobytes(), rows(0, 0))


@pytest.mark.ci
@given(st.lists(SPAN, min_size=1, max_size=20), st.sampled_from([0.5, 2.0, 4.0, 0.3846153846153846, 1.9]))
def test_a_factor_converts_ticks_to_nanoseconds(each: list[dict[str, int]], factor: float) -> None:
    merged, ticks = _reader.Summaries(), folded(spans(*each))
    merged.merge(ticks.tobytes(), rows(*range(len(ticks))), factor)
    ns = of(merged)
    for name in ("count", "elements", "bytes"):
        np.testing.assert_array_equal(ns[name], ticks[name])
    for name in ("total", "child", "min", "max"):
        np.testing.assert_allclose(ns[name], ticks[name] * factor, atol=0.5000001, rtol=1e-15, err_msg=name)
    np.testing.assert_allclose(ns["squares"], ticks["squares"] * factor**2, rtol=1e-12)
    shift = round(4 * np.log2(factor))
    for ns_counts, tick_counts in zip(ns["histogram"], ticks["histogram"], strict=True):
        wanted = np.zeros(128, np.uint64)
        np.add.at(wanted, np.clip(np.arange(128) + shift, 0, 127), tick_counts)
        np.testing.assert_array_equal(ns_counts, wanted)


def test_merged_sums_of_corrupt_summaries_saturate() -> None:
    most: dtypes.Array = np.zeros(1, dtypes.dtype("summary"))
    for name in ("count", "total", "child", "again", "elements", "bytes", "max", "histogram"):
        most[name] = U64
    merged = _reader.Summaries(most.tobytes())
    merged.merge(most.tobytes(), rows(0))
    merged.merge(most.tobytes(), rows(0), 2.0)
    for name in ("count", "total", "child", "again", "elements", "bytes", "max"):
        assert of(merged)[name][0] == U64
    assert (of(merged)["histogram"] == U64).all()


def test_sums_of_impossible_spans_saturate() -> None:
    ours = _reader.Summaries()
    for _ in range(3):
        ours.add(0, 2**63, 2**63, 2**63)
    (row,) = of(ours)
    assert row["count"] == 3
    assert [row[name] for name in ("total", "elements", "bytes")] == [U64] * 3
    assert row["squares"] == 3 * 2.0**126


def test_a_row_with_count_zero_is_all_zeros() -> None:
    empty: dtypes.Array = np.zeros(1, dtypes.dtype("summary"))
    empty["min"] = 7
    ours = _reader.Summaries(empty.tobytes())
    assert ours.tobytes() == bytes(_reader.SUMMARY_BYTES)
    ours.add(0, 9, 0, 0)
    assert (of(ours)["min"][0], of(ours)["max"][0]) == (9, 9)


def test_an_exported_row_never_changes() -> None:
    ours = _reader.Summaries()
    ours.add(0, 5, 1, 2)
    before = ours.tobytes()
    ours.add(0, 5, 1, 2)
    assert (dtypes.summaries(before)["count"][0], of(ours)["count"][0]) == (1, 2)


@pytest.mark.parametrize("bytes_", [1, _reader.SUMMARY_BYTES - 1, _reader.SUMMARY_BYTES + 1])
def test_bytes_that_are_not_summaries_are_refused(bytes_: int) -> None:
    with pytest.raises(ValueError, match=r"not an array of summaries of 1152 bytes each$"):
        _reader.Summaries(bytes(bytes_))
    with pytest.raises(ValueError, match=r"not an array of summaries"):
        _reader.Summaries().merge(bytes(bytes_), b"")


@pytest.mark.parametrize("many", [0, 1, 3])
def test_rows_beyond_the_summaries_are_refused(many: int) -> None:
    with pytest.raises(ValueError, match=r"^2 summaries need the same number of rows \(int32\)$"):
        _reader.Summaries().merge(bytes(2 * _reader.SUMMARY_BYTES), rows(*[0] * many))


def test_rows_without_summaries_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^0 summaries need the same number of rows \(int32\)$"):
        _reader.Summaries().merge(b"", rows(0))


@pytest.mark.parametrize("factor", [0.0, -1.0, float("inf"), float("nan")])
def test_an_invalid_factor_is_refused(factor: float) -> None:
    with pytest.raises(ValueError, match=r"factor"):
        _reader.Summaries().merge(b"", b"", factor)


@pytest.mark.parametrize("path", [-1, 65472])
def test_an_invalid_path_is_refused(path: int) -> None:
    with pytest.raises(IndexError, match=rf"^path is {path}, expected 0 to 65471$"):
        _reader.Summaries().add(path, 1, 1, 1)


@pytest.mark.parametrize("amount", [-1, 2**64])
def test_amounts_must_fit_into_64_bits(amount: int) -> None:
    for amounts in ((amount, 0, 0), (0, amount, 0), (0, 0, amount)):
        with pytest.raises((OverflowError, ValueError)):
            _reader.Summaries().add(0, *amounts)
