"""The comparison of the times of two groups of workers: random draws, made-up workers, arbitrary numbers."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_up_workers import MadeUp, programs

from brickd.analysis.timing.pace_compare import CALLS_MIN, CHANCE, LEAST, Paces, Pair, paces
from brickd.shm import _reader
from brickd.shm.segment_copy import CallPath, Reading

Draw = Callable[[np.random.Generator, int], np.ndarray]

# Random times, relative to their centre.
DRAWS: dict[str, Draw] = {
    "all alike": lambda random, n: random.normal(1, 0.01, n),
    "unsteady": lambda random, n: random.lognormal(0, 0.3, n),
    "with long stops": lambda random, n: random.normal(1, 0.03, n) * np.where(random.random(n) < 0.002, 1000, 1),
    "two kinds": lambda random, n: random.choice([1, 2], n) * random.normal(1, 0.02, n),
    "one in a hundred": lambda random, n: np.where(random.random(n) < 0.01, 4.0, 1.0),
    "without a middle": lambda random, n: 1 + random.pareto(1.5, n),
}


def worker(bricks: dict[str, Iterable[float]], tick_ns: float = 1.0, category: str | None = None) -> Reading:
    """Return a worker with these times."""
    made = MadeUp(tick_ns=tick_ns)
    for name, times in bricks.items():
        for ns in times:
            made.begin(name, category=category)
            made.spend(round(ns / tick_ns))
            made.end()
    return made.reading()


def drawn(bricks: Sequence[np.ndarray]) -> Reading:
    """Return a worker with these times in numbered bricks; numpy adds them up, for speed."""
    made = MadeUp()
    for number in range(len(bricks)):
        made.begin(str(number))
        made.end()
    reading = made.reading()
    entries = np.frombuffer(bytes(reading.summaries), dtypes.dtype("summary")).copy()
    for entry, times in zip(entries[1:], bricks, strict=True):
        ticks = times.astype(np.uint64)
        entry["count"], entry["total"], entry["min"], entry["max"] = len(ticks), ticks.sum(), ticks.min(), ticks.max()
        buckets = np.floor(4 * np.log2(ticks.astype(float))).astype(int) - 20
        entry["histogram"] = np.bincount(buckets, minlength=128)
    return replace(reading, summaries=entries.tobytes())


def only(found: Paces) -> Pair:
    (pair,) = found.pairs
    return pair


def times(middle: float, count: int = 400) -> list[float]:
    """Return times within 10 % of the middle."""
    return [middle * (1 + 0.1 * math.sin(n)) for n in range(count)]


# ---- reported differences


@pytest.mark.parametrize(("calls", "judged"), [(7, False), (8, True)])
def test_a_comparison_needs_eight_calls_of_each_group(calls: int, *, judged: bool) -> None:
    few, many = worker({"gemm": [1e6] * calls}), worker({"gemm": [9e6] * 100})
    for a, b in ((few, many), (many, few)):
        found = only(paces([a], [b]))
        assert (found.p_value is not None, found.significant) == (judged, judged)


def test_differences_of_five_percent_matter_at_a_level_of_one_percent() -> None:
    one = paces([worker({"a": [1e6] * 9})], [worker({"a": [1e6] * 9})]).document()
    assert (one["least_percent"], one["level"]) == (5.0, 0.01)
    bricks: dict[str, Iterable[float]] = {"a": [1e6] * 9, "b": [1e6] * 9, "rare": [1e6] * 7}
    two = paces([worker(bricks)], [worker(bricks)]).document()
    assert two["level"] == 0.005


@pytest.mark.ci
@pytest.mark.parametrize("counts", [(CALLS_MIN, CALLS_MIN), (10, 2000), (300, 300)])
@pytest.mark.parametrize("kind", DRAWS)
def test_equal_groups_do_not_differ(kind: str, counts: tuple[int, int]) -> None:
    """The test makes four comparisons of 100 bricks. By chance, at most about one in 100 such comparisons reports a
    difference.
    """
    for seed in range(4):
        random = np.random.default_rng(seed)
        middles = 1e6 * 2 ** random.uniform(0, 1, 100)
        groups = [[middle * DRAWS[kind](random, count) for middle in middles] for count in counts]
        found = paces(*([drawn(group)] for group in groups))
        assert found.level == CHANCE / 100
        assert [pair.brick for pair in found.pairs if pair.significant] == []


@pytest.mark.parametrize(
    ("kind", "least"),
    [("all alike", 100), ("unsteady", 98), ("one in a hundred", 95), ("with long stops", 60), ("two kinds", 60)],
)
def test_a_group_that_is_20_percent_slower_differs(kind: str, least: int) -> None:
    random = np.random.default_rng(7)
    middles = 1e6 * 2 ** random.uniform(0, 1, 100)
    fast, slow = (drawn([by * middle * DRAWS[kind](random, 400) for middle in middles]) for by in (1.0, 1.2))
    found = [pair for pair in paces([fast], [slow]).pairs if pair.significant]
    assert len(found) >= least
    assert all((pair.difference_percent or 0) >= 100 * LEAST for pair in found)


def test_a_difference_has_both_medians_and_its_cost() -> None:
    fast, slow = worker({"gemm": times(1e6)}, category="ffn"), worker({"gemm": times(1.2e6, 800)}, category="ffn")
    pair = only(paces([fast], [slow]))
    assert pair.significant
    assert pair.p_value is not None
    assert pair.p_value < 1e-50
    assert pair.difference_percent == pytest.approx(20, abs=4)
    assert pair.cost_ns == pytest.approx(400 * 0.2e6, rel=0.01)
    answer = pair.document()
    assert (answer["brick"], answer["category"], answer["a"]["calls"], answer["b"]["calls"]) == (
        "gemm",
        "ffn",
        400,
        800,
    )
    assert answer["a"]["median_ns"] == pytest.approx(1e6, rel=0.05)
    assert answer["b"]["mean_ns"] == pytest.approx(1.2e6, rel=0.01)


def test_more_work_at_the_same_speed_is_no_difference() -> None:
    pair = only(paces([worker({"gemm": times(1e6)})], [worker({"gemm": times(1e6)})] * 5))
    assert (pair.b["count"], pair.p_value, pair.significant) == (2000, 1.0, False)


def test_spans_on_both_sides_of_a_bucket_boundary_do_not_differ() -> None:
    border = 2**20
    below, above = [worker({"gemm": [border / 2, border * 2, *[at] * 1000]}) for at in (border - 100, border + 100)]
    pair = only(paces([below] * 50, [above] * 50))
    assert pair.p_value == 0
    assert pair.difference_percent == pytest.approx(19, abs=1)
    assert not pair.significant


def test_medians_a_bucket_apart_differ_despite_one_long_stop() -> None:
    fast, slow = worker({"gemm": [*times(1e6), 1e12]}), worker({"gemm": times(1.6e6)})
    pair = only(paces([fast], [slow]))
    assert pair.a["mean_ns"] > pair.b["mean_ns"]
    assert pair.significant


def test_the_slow_brick_comes_before_its_parents_and_normal_ones() -> None:
    def step(gemm: int) -> Reading:
        made = MadeUp()
        for _ in range(50):
            made.begin("step")
            made.spend(1_000_000)
            made.begin("gemm")
            made.spend(gemm)
            made.end()
            made.end()
            made.begin("idle")
            made.spend(9_000_000)
            made.end()
        return made.reading()

    found = paces([step(1_000_000)], [step(3_000_000)])
    assert [(pair.brick, pair.significant) for pair in found.pairs] == [("gemm", True), ("step", True), ("idle", False)]


# ---- bricks that are not compared


def test_bounds_are_not_compared_and_are_listed() -> None:
    fast, slow = worker({"gemm": times(1e6), "norm": times(1e3)}), worker({"gemm": times(2e6), "norm": times(1e3)})
    paths = [CallPath(*path[:3], _reader.UNIT_BOUND) if path and path.name == 1 else path for path in slow.paths]
    bounds = replace(slow, paths=paths)
    found = paces([fast], [bounds])
    assert found.bounded == ["gemm"]
    gemm = next(pair for pair in found.pairs if pair.brick == "gemm")
    assert (gemm.b["count"], gemm.p_value, gemm.significant) == (0, None, False)
    both = paces([bounds], [bounds])
    assert [pair.brick for pair in both.pairs] == ["norm"]


def test_a_brick_of_only_one_group_is_listed_without_a_difference() -> None:
    found = paces([worker({"gemm": times(1e6)})], [])
    answer = only(found).document()
    assert answer["b"] == {"calls": 0, "median_ns": None, "mean_ns": None}
    assert (answer["difference_percent"], answer["p_value"], answer["cost_ns"], answer["significant"]) == (
        None,
        None,
        0,
        False,
    )
    assert paces([], []).pairs == []


def test_too_few_spans_give_no_verdict() -> None:
    few = worker({"gemm": [9e6] * (CALLS_MIN - 1)})
    pair = only(paces([worker({"gemm": times(1e6)})], [few]))
    assert (pair.p_value, pair.significant) == (None, False)
    assert pair.difference_percent == pytest.approx(800, rel=0.2)


def test_spans_without_duration_do_not_differ_from_each_other() -> None:
    nothing, some = worker({"gemm": [0] * 50}), worker({"gemm": times(1e6)})
    same = only(paces([nothing], [nothing]))
    assert (same.difference_percent, same.p_value, same.significant) == (0, 1.0, False)
    assert (only(paces([nothing], [some])).difference_percent, only(paces([nothing], [some])).significant) == (
        None,
        True,
    )


# ---- clocks


def given_times(values: Iterable[float], tick_ns: float) -> Reading:
    made = MadeUp(tick_ns=tick_ns)
    for ns in values:
        made.give("gemm", round(ns))
    return made.reading()


@pytest.mark.parametrize("tick_ns", [0.38461538, 0.25, 0.7, 41.7])
def test_given_nanoseconds_are_compared_as_exactly_as_ticks(tick_ns: float) -> None:
    ten_percent = [[given_times(times(middle), tick_ns)] for middle in (1e6, 1.1e6)]
    assert only(paces(*ten_percent)).significant
    assert not only(paces(ten_percent[0], ten_percent[0])).significant


@pytest.mark.parametrize("tick_ns", [0.38461538, 0.25, 0.7, 41.7])
@pytest.mark.parametrize("middle", [20, 3e3, 1e6, 1.07e6, 1.13e6])
def test_equal_times_by_different_clocks_do_not_differ(tick_ns: float, middle: float) -> None:
    wide = [middle * 2 ** (n / 200 - 1) for n in range(400)]
    ticks = worker({"gemm": wide}, tick_ns)
    for other in (worker({"gemm": wide}), given_times(wide, tick_ns)):
        pair = only(paces([ticks], [other]))
        assert not pair.significant
        # the ticks of the two clocks differ by a factor of 4, which is two octaves, so the boundaries of their buckets
        # are the same
        if tick_ns == 0.25 and middle > 50:
            assert pair.p_value == pytest.approx(1, abs=0.2)


@pytest.mark.parametrize("stopped", [0, 1])
def test_differences_explained_by_bucket_boundaries_do_not_count_despite_a_stop(stopped: int) -> None:
    wide = [1e6 * 2 ** (n / 1000 - 1) for n in range(2000)]
    groups = [worker({"gemm": [*wide, 1e12] if side == stopped else wide}, (1.0, 0.38461538)[side]) for side in (0, 1)]
    assert not only(paces([groups[0]], [groups[1]])).significant


@pytest.mark.parametrize("tick_ns", [0.38461538, 0.25, 0.7, 41.7])
def test_twice_the_time_differs_by_different_clocks(tick_ns: float) -> None:
    pair = only(paces([worker({"gemm": times(1e6)})], [worker({"gemm": times(2e6)}, tick_ns)]))
    assert pair.significant
    assert pair.difference_percent == pytest.approx(100, rel=0.4)


# ---- any recorded times


def _by_brick(found: Paces) -> dict[str, Pair]:
    return {pair.brick: pair for pair in found.pairs}


GROUP = st.lists(programs(), max_size=3)


@pytest.mark.ci
@settings(deadline=None)
@given(GROUP, GROUP)
def test_swapping_the_groups_changes_signs_and_no_verdict(first: list[MadeUp], second: list[MadeUp]) -> None:
    a, b = ([each.reading() for each in group] for group in (first, second))
    there, back = paces(a, b), paces(b, a)
    assert json.loads(json.dumps(there.document()))["level"] == back.document()["level"]
    assert there.bounded == back.bounded
    assert [pair.brick for pair in there.pairs] == [pair.brick for pair in back.pairs]
    for pair in back.pairs:
        other = _by_brick(there)[pair.brick]
        assert (other.p_value, other.significant) == (pair.p_value, pair.significant)
        assert (other.a, other.b, other.cost_ns) == (pair.b, pair.a, -pair.cost_ns)
        if pair.difference_percent is not None and other.difference_percent is not None:
            assert pair.difference_percent * other.difference_percent <= 0


SPANS = st.lists(st.integers(2**6, 2**20), min_size=CALLS_MIN, max_size=40)


@settings(deadline=None)
@given(SPANS, SPANS, st.floats(0.5, 4), st.sampled_from([1.0, 0.7, 0.25]))
def test_verdicts_do_not_depend_on_the_order_of_groups(
    first: list[int], second: list[int], longer: float, tick_ns: float
) -> None:
    a, b = worker({"gemm": first}), worker({"gemm": [longer * ns for ns in second]}, tick_ns)
    there, back = only(paces([a], [b])), only(paces([b], [a]))
    assert (there.p_value, there.significant, there.cost_ns) == (back.p_value, back.significant, -back.cost_ns)
    assert (there.difference_percent or 0) * (back.difference_percent or 0) <= 0


@pytest.mark.ci
@settings(deadline=None)
@given(SPANS, SPANS, st.integers(0, 12), st.integers(0, 6))
def test_scaling_all_times_changes_no_verdict(first: list[int], second: list[int], octaves: int, clock: int) -> None:
    """The test scales the times in two ways at once: each tick is longer, and each duration has more ticks."""
    short = only(paces([worker({"gemm": first})], [worker({"gemm": second})]))
    longer = [
        worker({"gemm": [ticks * 2 ** (octaves + clock) for ticks in each]}, 2**clock) for each in (first, second)
    ]
    long = only(paces([longer[0]], [longer[1]]))
    assert (long.p_value, long.significant) == (short.p_value, short.significant)
    assert long.a["p50_ns"] == pytest.approx(short.a["p50_ns"] * 2 ** (octaves + clock))
    assert long.difference_percent == pytest.approx(short.difference_percent, rel=1e-3, abs=1e-3)


@given(
    st.lists(
        st.tuples(
            *[st.integers(0, 2**62) | st.just(2**62)] * 5,
            st.integers(0, 127),
            st.sampled_from([1e-3, 0.05, 1.0, 50.0, 1e6]),
        ),
        min_size=2,
        max_size=6,
    )
)
def test_any_accepted_data_give_a_document(entries: list[tuple[float, ...]]) -> None:
    made = MadeUp()
    made.begin("gemm")
    made.end()
    readings = []
    for *numbers, bucket, tick_ns in entries:
        entry = np.zeros(2, dtypes.dtype("summary"))
        for name, value in zip(("count", "total", "child", "min", "max"), numbers, strict=True):
            entry[name][1] = value
        entry["histogram"][1, int(bucket)] = numbers[0]
        readings.append(replace(made.reading(), summaries=entry.tobytes(), tick_ns=tick_ns))
    document = paces(readings[::2], readings[1::2]).document()
    for each in json.loads(json.dumps(document, allow_nan=False))["bricks"]:
        assert each["p_value"] is None or 0 <= each["p_value"] <= 1
