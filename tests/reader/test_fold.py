"""The fold (the code that sums workers) gives the same totals as plain sums, sorted lists and numpy."""

from __future__ import annotations

import array
import itertools
import math
import statistics
from collections import Counter
from dataclasses import dataclass

import dtypes
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from brickd.shm import _reader

BUCKET = 2 ** (1 / 4)
LIMIT = 2**62  # the reader refuses counts and times above this limit


def bucket_of(ticks: int) -> int:
    return min(max((ticks**4).bit_length() - 1 - 20, 0), 127)


def roots(paths: int) -> bytes:
    return array.array("i", [-1] * paths).tobytes()


@dataclass
class Spans:
    """The measured spans of one path of one worker, in ticks."""

    durations: list[int]
    child_part: float = 0.0
    again_part: float = 0.0
    elements: int = 0
    bytes: int = 0
    row: int = 0
    outer: bool = True
    flops: int = 0

    @property
    def child(self) -> int:
        return int(sum(self.durations) * self.child_part)

    @property
    def again(self) -> int:
        return int(sum(self.durations) * self.again_part)


@dataclass
class Measured:
    """A worker, with the length of its tick and its paths."""

    tick_ns: float
    paths: list[Spans]

    def summaries(self) -> bytes:
        entries = np.zeros(len(self.paths), dtypes.dtype("summary"))
        for entry, path in zip(entries, self.paths, strict=True):
            if not path.durations:
                continue
            entry["count"], entry["total"] = len(path.durations), sum(path.durations)
            entry["child"], entry["again"] = path.child, path.again
            entry["squares"] = math.fsum(float(d) ** 2 for d in path.durations)
            entry["min"], entry["max"] = min(path.durations), max(path.durations)
            entry["elements"], entry["bytes"] = path.elements, path.bytes
            entry["reserved"][0] = np.float64(path.flops).view(np.uint64)
            for duration in path.durations:
                entry["histogram"][bucket_of(duration)] += 1
        return entries.tobytes()

    def add_to(self, fold: _reader.Fold, worker_number: int = 0) -> None:
        rows = array.array("i", [path.row for path in self.paths])
        flags = bytes(_reader.PART_OUTER * path.outer for path in self.paths)
        fold.add(self.summaries(), rows, roots(len(self.paths)), flags, self.tick_ns, worker_number)


# The longest duration. Multiplied by 160, it is still below the last bucket, in which percentiles are only bounds. (160
# is the greatest ratio of two tick lengths in these tests.)
MOST = 2**29


def durations(most: int = MOST) -> st.SearchStrategy[list[int]]:
    # All orders of magnitude of durations are equally likely.
    each = st.integers(0, most.bit_length() - 1).flatmap(lambda bits: st.integers(2**bits - 1, 2 ** (bits + 1) - 1))
    return st.lists(each, max_size=12) | st.lists(each, max_size=3).map(lambda values: values * 40)


AMOUNT = st.integers(0, 2**48)
PART = st.floats(0, 1)
PATH = st.builds(Spans, durations(), PART, PART, AMOUNT, AMOUNT, st.integers(-1, 3), st.booleans(), AMOUNT)
TICK = st.sampled_from([1.0, 0.3846153846153846, 0.5, 0.25, 2.0, 1.9, 40.0])
WORKERS = st.lists(st.builds(Measured, TICK, st.lists(PATH, max_size=5)), max_size=4)


def folded(workers: list[Measured]) -> _reader.Fold:
    fold = _reader.Fold()
    for worker in workers:
        worker.add_to(fold)
    return fold


def in_row(workers: list[Measured], row: int) -> list[tuple[float, Spans]]:
    return [(w.tick_ns, path) for w in workers for path in w.paths if path.row == row and path.durations]


@pytest.mark.ci
@given(WORKERS)
def test_a_row_has_the_sums_of_all_workers(workers: list[Measured]) -> None:
    fold = folded(workers)
    for index in range(-1, 6):
        row, parts = fold.row(index), in_row(workers, index if index >= 0 else 99)
        ns = np.array([d * tick for tick, path in parts for d in path.durations], float)
        assert row["count"] == len(ns)
        assert row["elements"] == sum(path.elements for _, path in parts)
        assert row["bytes"] == sum(path.bytes for _, path in parts)
        assert row["flops"] == sum(path.flops for _, path in parts)
        total, child = float(ns.sum()), sum(path.child * tick for tick, path in parts)
        inclusive = sum((sum(path.durations) - path.again) * tick for tick, path in parts if path.outer)
        close = 1e-9 * (total + 1)
        assert row["total_ns"] == pytest.approx(inclusive, abs=close)
        assert row["self_ns"] == pytest.approx(total - child, abs=close)
        if not len(ns):
            assert set(row.values()) == {0}
            continue
        assert row["mean_ns"] == pytest.approx(ns.mean())
        assert row["min_ns"] == pytest.approx(ns.min())
        assert row["max_ns"] == pytest.approx(ns.max())
        # The deviation is computed from the difference of two squares. This makes half of its digits inexact.
        assert row["deviation_ns"] == pytest.approx(ns.std(), rel=1e-6, abs=1e-7 * ns.max())


@pytest.mark.ci
@given(WORKERS)
def test_a_row_names_the_worker_with_the_largest_mean_and_its_ratio(workers: list[Measured]) -> None:
    fold = _reader.Fold()
    for number, worker in enumerate(workers):
        worker.add_to(fold, number)
    for row in range(4):
        means = {
            number: float(np.mean([d * worker.tick_ns for path in paths for d in path.durations]))
            for number, worker in enumerate(workers)
            if (paths := [path for path in worker.paths if path.row == row and path.durations])
        }
        found = fold.row(row)
        if not means:
            assert (found["worst"], found["spread"]) == (0, 0)
            continue
        most, median = max(means.values()), statistics.median(means.values())
        assert means[found["worst"]] == pytest.approx(most)
        assert found["spread"] == pytest.approx(most / median if median > 0 else 1)


@pytest.mark.parametrize("order", list(itertools.permutations((0, 1, 2))))
def test_of_equal_means_the_highest_number_is_the_worst(order: tuple[int, ...]) -> None:
    fold = _reader.Fold()
    for number in order:
        Measured(1.0, [Spans([7, 9] if number else [3])]).add_to(fold, number)
    assert (fold.row(0)["worst"], fold.row(0)["spread"]) == (2, 1)


PERCENTILES = {"p50_ns": 0.50, "p90_ns": 0.90, "p95_ns": 0.95, "p99_ns": 0.99, "p999_ns": 0.999}


def apart(value: float, wanted: float, small: float) -> float:
    """Return how many buckets apart two durations are. All durations below `small` count as one bucket."""
    return abs(math.log(max(value, small) / max(wanted, small), BUCKET))


@given(st.lists(durations(), min_size=1, max_size=3), TICK)
def test_a_percentile_is_within_a_bucket_of_the_true_one(lists: list[list[int]], tick_ns: float) -> None:
    every = sorted(d * tick_ns for each in lists for d in each)
    row = folded([Measured(tick_ns, [Spans(each) for each in lists])]).row(0)
    for name, fraction in PERCENTILES.items():
        wanted = every[max(math.ceil(fraction * len(every)), 1) - 1] if every else 0.0
        value: float = row[name]  # type: ignore[literal-required]
        assert row["min_ns"] <= value <= row["max_ns"]
        assert apart(value, wanted, 2**5.25 * tick_ns) <= 1 + 1e-9


def interpolated(ticks: list[int], fraction: float, tick_ns: float) -> float:
    """Return the percentile as it is defined. Within a bucket, it is interpolated by rank; the interpolation is
    logarithmic except in the first bucket.
    """
    spans = Counter(map(bucket_of, ticks))
    rank, below, bucket = fraction * len(ticks), 0, 0
    while bucket < 127 and below + spans[bucket] < rank:
        below += spans[bucket]
        bucket += 1
    part = (rank - below) / spans[bucket]
    low = 0.0 if bucket == 0 else 2 ** (5 + bucket / 4)
    high = max(ticks) if bucket == 127 else 2 ** (5 + (bucket + 1) / 4)
    value = low * (high / low) ** part if low else high * part
    return float(min(max(value, min(ticks)), max(ticks)) * tick_ns)


@given(durations(2**45).filter(bool), TICK)
@example([10, 20, 30, 35], 1.0)
@example([1] * 50 + [2**20] * 50, 2.0)
@example([2**37, 2**38, 2**39, 2**40], 1.0)
def test_a_percentile_is_interpolated_within_its_bucket(ticks: list[int], tick_ns: float) -> None:
    row = folded([Measured(tick_ns, [Spans(ticks)])]).row(0)
    for name, fraction in PERCENTILES.items():
        assert row[name] == pytest.approx(interpolated(ticks, fraction, tick_ns), rel=1e-12)  # type: ignore[literal-required]


@pytest.mark.ci
@given(WORKERS)
def test_workers_with_other_clocks_move_a_percentile_by_half_a_bucket(workers: list[Measured]) -> None:
    fold = folded(workers)
    small = 2**5.25 * max((worker.tick_ns for worker in workers), default=1.0) * BUCKET
    for index in range(4):
        every = sorted(d * tick for tick, path in in_row(workers, index) for d in path.durations)
        row = fold.row(index)
        for name, fraction in PERCENTILES.items():
            wanted = every[max(math.ceil(fraction * len(every)), 1) - 1] if every else 0.0
            value: float = row[name]  # type: ignore[literal-required]
            assert row["min_ns"] <= value <= row["max_ns"]
            assert apart(value, wanted, small) <= 1.5 + 1e-9


@pytest.mark.ci
@given(st.lists(st.builds(Measured, TICK, st.lists(PATH, max_size=3)), min_size=2, max_size=3))
def test_the_order_of_workers_does_not_matter(workers: list[Measured]) -> None:
    first = [folded(workers).row(index) for index in range(4)]
    for order in itertools.permutations(workers):
        fold = folded(list(order))
        for index, wanted in enumerate(first):
            row = fold.row(index)
            for name in ("count", "elements", "bytes", "min_ns", "max_ns"):
                assert row[name] == wanted[name]
            for name in ("total_ns", "self_ns", "mean_ns"):
                close = 1e-9 * (wanted["mean_ns"] * wanted["count"] + 1)
                assert row[name] == pytest.approx(wanted[name], abs=close)  # type: ignore[literal-required]


@given(durations(), durations(), durations(), st.booleans())
def test_given_times_are_nanoseconds_and_reduce_their_parents_self_time(
    parent: list[int], measured: list[int], given_: list[int], again: bool
) -> None:
    child_part = sum(measured) / sum(parent) if sum(parent) > sum(measured) else 0.0
    paths = [Spans(parent, child_part), Spans(measured, row=1), Spans(given_, row=0 if again else 2)]
    places = array.array("i", [path.row for path in paths]), array.array("i", [-1, 0, 0])
    flags = bytes([_reader.PART_OUTER, _reader.PART_OUTER, _reader.PART_NS | (0 if again else _reader.PART_OUTER)])
    fold = _reader.Fold()
    fold.add(Measured(2.0, paths).summaries(), *places, flags, 2.0)
    own = (sum(parent) - paths[0].child) * 2.0
    wanted = max(own - sum(given_), 0) + (sum(given_) if again else 0)
    close = 1e-9 * (sum(parent) * 2.0 + sum(given_) + 1)
    assert fold.row(0)["self_ns"] == pytest.approx(wanted if parent else sum(given_) * again, abs=close)
    assert fold.row(0)["total_ns"] == pytest.approx(sum(parent) * 2.0, abs=close)
    if given_ and not again:
        assert fold.row(2)["max_ns"] == max(given_)
        assert fold.row(2)["total_ns"] == sum(given_)


def test_the_last_bucket_extends_to_the_longest_span() -> None:
    row = folded([Measured(1.0, [Spans([2**37, 2**50])])]).row(0)
    assert row["max_ns"] == 2**50
    assert 2**36.75 <= row["p50_ns"] <= row["p999_ns"] <= 2**50


def test_one_span_has_its_duration_as_every_percentile() -> None:
    row = folded([Measured(1.0, [Spans([1234567])])]).row(0)
    assert {row["p50_ns"], row["p90_ns"], row["p99_ns"], row["p999_ns"], row["mean_ns"]} == {1234567.0}
    assert row["deviation_ns"] == 0


def test_a_row_without_data_is_empty() -> None:
    assert set(_reader.Fold().row(7).values()) == {0}
    assert set(_reader.Fold().row(-1).values()) == {0}


@pytest.mark.parametrize(("index", "error"), [("1", TypeError), (None, TypeError), (2**70, OverflowError)])
def test_an_invalid_row_number_is_refused(index: object, error: type[Exception]) -> None:
    fold = folded([Measured(1.0, [Spans([5])])])
    with pytest.raises(error):
        fold.row(index)  # type: ignore[arg-type]
    with pytest.raises(error):
        fold.histogram(index)  # type: ignore[arg-type]


@pytest.mark.parametrize("tick_ns", [0.0, -1.0, math.inf, math.nan])
def test_an_invalid_tick_length_is_refused(tick_ns: float) -> None:
    with pytest.raises(ValueError, match="tick"):
        _reader.Fold().add(bytes(1152), bytes(4), bytes(4), b"\1", tick_ns)


def test_rows_that_do_not_fit_the_paths_are_refused() -> None:
    for rows, parents, flags in ((0, 4, 1), (8, 4, 1), (4, 4, 0), (4, 0, 1)):
        with pytest.raises(ValueError, match="as many rows"):
            _reader.Fold().add(bytes(1152), bytes(rows), bytes(parents), bytes(flags), 1.0)


# ---- numbers that the reader accepts although no correct worker writes them


def hostile(**values: float) -> bytes:
    entry = np.zeros(1, dtypes.dtype("summary"))
    for name, value in values.items():
        entry[name] = value
    entry["histogram"][0, 0] = entry["count"][0]
    return entry.tobytes()


def with_one_honest(*hostile_summaries: bytes) -> _reader.Row:
    fold = _reader.Fold()
    Measured(1.0, [Spans([100, 200], elements=3, bytes=5)]).add_to(fold)
    for each in hostile_summaries:
        fold.add(each, bytes(4), roots(1), b"\1", 1.0)
    return fold.row(0)


@pytest.mark.parametrize("amount", ["elements", "bytes"])
def test_amounts_saturate(amount: str) -> None:
    row = with_one_honest(hostile(count=1, total=1, min=1, max=1, **{amount: 2**64 - 1}))
    assert row[amount] == 2**64 - 1  # type: ignore[literal-required]


def test_counts_saturate() -> None:
    row = with_one_honest(*[hostile(count=LIMIT, total=LIMIT, max=LIMIT)] * 4)
    assert row["count"] == 2**64 - 1


def test_children_longer_than_their_worker_reduce_no_other_workers_self_time() -> None:
    assert with_one_honest(hostile(count=1, total=1, max=1, child=LIMIT))["self_ns"] >= 300


def test_recursions_longer_than_their_worker_reduce_no_other_workers_time() -> None:
    assert with_one_honest(hostile(count=1, total=1, max=1, again=LIMIT))["total_ns"] >= 300


@pytest.mark.ci
@given(
    st.lists(
        st.fixed_dictionaries(
            {
                name: st.integers(0, LIMIT) | st.just(LIMIT)
                for name in ("count", "total", "child", "again", "min", "max")
            }
            | {"squares": st.floats(0, 2.0**124)}
        ),
        max_size=6,
    )
)
def test_any_accepted_summaries_give_finite_numbers(entries: list[dict[str, float]]) -> None:
    row = with_one_honest(*[hostile(**entry) for entry in entries])
    assert all(math.isfinite(value) and value >= 0 for value in row.values() if isinstance(value, float | int))


@pytest.mark.ci
@given(WORKERS)
def test_a_histogram_counts_every_span_in_the_buckets_of_the_first_clock(workers: list[Measured]) -> None:
    fold = folded(workers)
    for index in range(-1, 6):
        found = fold.histogram(index)
        assert (len(found), sum(found)) == (128, fold.row(index)["count"])
        parts = in_row(workers, index) if index >= 0 else []
        if all(tick == workers[0].tick_ns for tick, _ in parts):
            each = [bucket_of(d) for _, path in parts for d in path.durations]
            assert found == np.bincount(np.array(each, int), minlength=128).tolist()
