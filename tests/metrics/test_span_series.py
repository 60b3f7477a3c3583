"""The series of spans: counts and sums that never go back, whatever happens to workers and clocks."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import dtypes
import numpy as np
import pytest
from made_up_workers import HOSTILE, MadeUp
from metric_pages import Series, labels, parsed, value

from brickd.metrics.exposition import Exposition
from brickd.metrics.span_series import BOUNDS_NS, LES, SpanSeries, bounds_of
from brickd.model.exported_series import BRICKS_MAX, SERVICES_MAX, TICKS_MAX, ExportedSeries
from brickd.model.retained_workers import RetainedTotals
from brickd.model.workers import Worker
from brickd.shm import _reader
from brickd.shm.ledger import Ledger

TSC, RAW = 1, 3


def worker(made: MadeUp, number: int, *, clock: int = TSC, tick_ns: float | None = None, alive: bool = True) -> Worker:
    reading = made.reading()
    header: Any = reading.header | {"uuid": number.to_bytes(16, "big"), "clock": clock, "started_ns": number}
    process: Any = reading.process | {"ended": 0}
    tick_ns = reading.tick_ns if tick_ns is None else tick_ns
    return Worker(
        f"api/{number}",
        replace(reading, header=header, process=process, tick_ns=tick_ns, pid=1 if alive else None),
        Ledger(),
    )


def spans(*durations: int, brick: str = "gemm", of: MadeUp | None = None, tick_ns: float = 1.0) -> MadeUp:
    made = of or MadeUp("api", tick_ns=tick_ns)
    for ticks in durations:
        made.begin(brick)
        made.spend(ticks)
        made.end()
    return made


def page(series: SpanSeries, *workers: Worker, shown: bool = True) -> Series:
    into = Exposition()
    names = {each.reading.uuid: each.name for each in workers} if shown else {}
    series.write({"api": list(workers)}, names, into)
    return parsed(into.text())


def saved(series: SpanSeries) -> ExportedSeries:
    return ExportedSeries.of(json.loads(json.dumps(series.exported.plain())))


def test_a_span_counts_at_the_first_bound_that_its_bucket_does_not_exceed() -> None:
    made = spans(900, 2_000, 10**9, 2 * 10**11)  # the last one is in the last bucket, which has no end
    of = page(SpanSeries(ExportedSeries()), worker(made, 1))
    counts = [value(of, "brickd_span_seconds_bucket", service="api", brick="gemm", le=le) for le in LES]
    # 900 ns are in a bucket that ends at 1.02 us
    assert dict(zip(LES, counts, strict=True)) == {
        le: sum([float(le) >= 3e-6, float(le) >= 3e-6, float(le) >= 3, float(le) > 10]) for le in LES
    }
    assert value(of, "brickd_span_seconds_count", service="api", brick="gemm") == 4
    assert value(of, "brickd_span_seconds_sum", service="api", brick="gemm") == 201.0000029


def test_sixteen_bounds_are_equal_for_all_clocks() -> None:
    assert len(LES) == _reader.BOUNDS == 16
    assert [float(le) for le in LES[:-1]] == [ns / 1e9 for ns in BOUNDS_NS]
    for tick_ns in (0.2, 1.0, 40.0):
        for bucket, bound in enumerate(bounds_of(tick_ns)[:-1]):
            end_ns = 2 ** (5 + (bucket + 1) / 4) * tick_ns
            assert bound == sum(ns < end_ns for ns in BOUNDS_NS)


def test_no_number_goes_back_when_the_length_of_a_tick_is_measured_anew() -> None:
    made, series = spans(*range(1000, 1100), tick_ns=0.4), SpanSeries(ExportedSeries())
    before = page(series, worker(made, 1, tick_ns=0.4000001))
    after = page(series, worker(made, 1, tick_ns=0.3999999))
    assert after == before


def test_the_length_of_a_tick_survives_a_restart_of_the_daemon() -> None:
    made, first = spans(*range(1000, 1100), tick_ns=0.4), SpanSeries(ExportedSeries())
    before = page(first, worker(made, 1, tick_ns=0.4000001))
    kept = saved(first)
    assert page(SpanSeries(kept), worker(made, 1, tick_ns=0.3999999)) == before


def test_the_length_of_a_tick_is_that_of_the_oldest_live_worker() -> None:
    made, series = spans(1000), SpanSeries(ExportedSeries())
    dead = worker(made, 1, tick_ns=1.0002, alive=False)
    page(series, worker(made, 3, tick_ns=1.0001), dead, worker(made, 2, tick_ns=1.0))
    assert series.exported.ticks == {"TSC": (1.0,)}


def test_a_clock_of_another_speed_has_its_own_length() -> None:
    series = SpanSeries(ExportedSeries())
    of = page(series, worker(spans(1000), 1, tick_ns=0.4), worker(spans(1000), 2, tick_ns=0.5))
    assert value(of, "brickd_span_seconds_sum", service="api", brick="gemm") == pytest.approx(900e-9)
    assert value(of, "brickd_worker_span_seconds_sum", service="api", worker="api/2", brick="gemm") == 5e-7


def test_more_speeds_than_places_let_no_number_go_back() -> None:
    made, series = spans(*range(1000, 1100)), SpanSeries(ExportedSeries())

    def of(error: float, speeds: int = TICKS_MAX + 3) -> Series:
        return page(series, *(worker(made, number, tick_ns=1 + number / 100 + error) for number in range(1, speeds)))

    before = of(1e-7)
    assert of(-1e-7) == before, "each worker keeps its length"
    assert SpanSeries(saved(series)).exported == series.exported
    page(series, worker(made, 1, tick_ns=1.01))
    after = page(series, worker(made, 1, tick_ns=1.01), worker(made, 2, tick_ns=3.0))
    one, two = (
        {"name": "brickd_worker_span_seconds_sum", "service": "api", "worker": name, "brick": "gemm"}
        for name in ("api/1", "api/2")
    )
    assert value(after, **one) == value(before, **one), "a length in use keeps its place"
    assert value(after, **two) == 314_850e-9, "and the others give it up"


def test_a_worker_that_dies_and_is_added_up_changes_nothing_of_its_service() -> None:
    one, two = worker(spans(*range(900, 950)), 1), worker(spans(*range(1, 90)), 2, tick_ns=1.0000001)
    series = SpanSeries(ExportedSeries())
    living = page(series, one, two, shown=False)
    totals = RetainedTotals("api/1", one.reading).and_(RetainedTotals("api/2", two.reading))
    added = Worker("api/older", replace(totals.reading, pid=None), Ledger(), totals.workers)
    assert page(series, added) == living, "and a sum of workers has no series of its own"


@pytest.mark.ci
def test_a_brick_with_series_keeps_them_and_the_rest_is_other() -> None:
    made, series = MadeUp("api"), SpanSeries(ExportedSeries())
    for number in range(BRICKS_MAX + 10):
        spans(100 + number, brick=f"b{number}", of=made)
    before = page(series, worker(made, 1))
    names = {each["brick"] for each in labels(before, "brickd_span_seconds_count")}
    assert names == {"other", *(f"b{number}" for number in range(10, BRICKS_MAX + 10))}, "the largest ones"
    assert value(before, "brickd_span_seconds_count", service="api", brick="other") == 10
    assert value(before, "brickd_other_bricks", service="api") == 10
    spans(10**9, brick="b0", of=made)
    spans(10**9, brick="late", of=made)
    after = page(series, worker(made, 1))
    assert after.keys() == before.keys()
    assert all(after[key] >= number for key, number in before.items())
    again = page(SpanSeries(saved(series)), worker(made, 1))
    assert again == after, "also after a restart of the daemon"


def test_a_brick_gets_a_place_while_there_is_one() -> None:
    made, series = spans(5), SpanSeries(ExportedSeries())
    page(series, worker(made, 1))
    made.begin("late")
    opened = page(series, worker(made, 1))
    assert {each["brick"] for each in labels(opened, "brickd_span_seconds_count")} == {"gemm"}
    assert value(opened, "brickd_other_bricks", service="api") == 0
    made.end()
    of = page(series, worker(made, 1))
    assert value(of, "brickd_span_seconds_count", service="api", brick="late") == 1
    assert value(of, "brickd_other_bricks", service="api") == 0


def test_a_brick_that_a_worker_calls_other_takes_no_place() -> None:
    made, series = spans(5, brick="other"), SpanSeries(ExportedSeries())
    of = page(series, worker(made, 1))
    assert value(of, "brickd_span_seconds_count", service="api", brick="other") == 1
    assert series.exported.bricks == {}
    page(series, worker(spans(5, of=made), 1))
    assert series.exported.bricks == {"api": (("gemm", False),)}


def test_places_are_given_in_order_and_never_more_than_there_are() -> None:
    first = ExportedSeries().with_bricks("api", [(f"b{number}", False) for number in range(BRICKS_MAX - 1)])
    full = first.with_bricks("api", [("x", False), ("y", False)])
    assert full.bricks["api"] == (*first.bricks["api"], ("x", False))
    assert full.with_bricks("api", [("z", True)]) is full


def test_bounds_are_never_among_measured_times() -> None:
    made = spans(5)
    made.paths.append(made.paths[1]._replace(unit=_reader.UNIT_BOUND))
    made.sums.append(made.sums[1])
    of = page(SpanSeries(ExportedSeries()), worker(made, 1))
    assert value(of, "brickd_span_seconds_count", service="api", brick="gemm") == 1
    assert value(of, "brickd_span_bound_seconds_count", service="api", brick="gemm") == 1
    assert value(of, "brickd_worker_span_bound_seconds_count", service="api", worker="api/1", brick="gemm") == 1


def test_bounds_without_a_place_are_not_among_measured_times_either() -> None:
    made = MadeUp("api")
    for number in range(BRICKS_MAX + 1):
        spans(100, brick=f"b{number}", of=made)
    made.paths[-1] = made.paths[-1]._replace(unit=_reader.UNIT_BOUND)
    full = ExportedSeries().with_bricks("api", [(f"b{number}", False) for number in range(BRICKS_MAX)])
    of = page(SpanSeries(full), worker(made, 1))
    assert value(of, "brickd_span_bound_seconds_count", service="api", brick="other") == 1
    assert "other" not in {each["brick"] for each in labels(of, "brickd_span_seconds_count")}


def test_given_times_are_in_ns_and_others_in_ticks() -> None:
    made = spans(1000, tick_ns=0.5)
    made.give("nccl", 1700)
    of = page(SpanSeries(ExportedSeries()), worker(made, 1))
    assert value(of, "brickd_span_seconds_bucket", service="api", brick="nccl", le="1e-06") == 0
    assert value(of, "brickd_span_seconds_bucket", service="api", brick="gemm", le="1e-06") == 1
    assert value(of, "brickd_span_seconds_sum", service="api", brick="gemm") == 5e-7
    assert value(of, "brickd_span_seconds_sum", service="api", brick="nccl") == 1.7e-6
    assert value(of, "brickd_worker_span_seconds_sum", service="api", worker="api/1", brick="nccl") == 1.7e-6


def test_recursion_counts_its_time_once_and_each_call() -> None:
    made = MadeUp("api")
    made.begin("f")
    spans(10, brick="f", of=made)
    made.spend(5)
    made.end()
    of = page(SpanSeries(ExportedSeries()), worker(made, 1))
    assert value(of, "brickd_span_seconds_count", service="api", brick="f") == 2
    assert value(of, "brickd_span_seconds_sum", service="api", brick="f") == 15e-9


def test_a_brick_inside_itself_in_another_layer_counts_its_time_once() -> None:
    made = MadeUp("api")
    for layer in (1, 2):
        made.begin("f", layer)
    made.spend(10)
    made.end()
    made.end()
    of = page(SpanSeries(ExportedSeries()), worker(made, 1))
    assert value(of, "brickd_span_seconds_count", service="api", brick="f") == 2
    assert value(of, "brickd_span_seconds_sum", service="api", brick="f") == 10e-9


def test_hostile_names_are_one_line_each_and_never_two_series() -> None:
    made, series = MadeUp("api"), SpanSeries(ExportedSeries())
    for name in (HOSTILE, "a\x1b", r"a\x1b", "\udc80", "", 'q"}\n# TYPE x', "\u202e", "é"):
        spans(5, brick=name, of=made)
    of = page(series, worker(made, 1))
    counts = {each["brick"]: of["brickd_span_seconds_count", frozenset(each.items())] for each in
              labels(of, "brickd_span_seconds_count")}  # fmt: skip
    assert counts[r"a\x1b"] == 2, "two names that look the same are one brick"
    assert sum(counts.values()) == 8
    assert all(name.isprintable() for name in counts)


@pytest.mark.ci
def test_a_service_has_at_most_a_thousand_series_and_a_worker_150() -> None:
    made, series = MadeUp("api"), SpanSeries(ExportedSeries())
    for number in range(2 * BRICKS_MAX):
        spans(5, brick=f"b{number}", of=made)
    of = page(series, worker(made, 1))
    assert sum("worker" not in dict(labels) for _, labels in of) <= 920, "80 are left for ledger, evidence and problems"
    assert sum("worker" in dict(labels) for _, labels in of) <= 104


@pytest.mark.ci
def test_ten_thousand_bricks_of_256_workers_fit_the_limits_of_series() -> None:
    made = MadeUp("api")
    for number in range(10_000):
        made.give(f"b{number}", 1000 + number)
    one = worker(made, 1)
    others = [worker(spans(5, brick="b1"), number) for number in range(2, 257)]
    of = page(SpanSeries(ExportedSeries()), one, *others)
    assert value(of, "brickd_other_bricks", service="api") == 9_950
    assert value(of, "brickd_span_seconds_count", service="api", brick="other") == 9_950 + 255
    assert sum("worker" not in dict(labels) for _, labels in of) <= 920
    assert sum("worker" in dict(labels) for _, labels in of) == 2 * (51 + 255)


def test_more_services_than_the_limit_have_no_bricks_of_their_own() -> None:
    exported = ExportedSeries()
    for number in range(SERVICES_MAX + 1):
        exported = exported.with_bricks(f"s{number}", [("b", False)])
    assert len(exported.bricks) == SERVICES_MAX
    assert ExportedSeries.of(exported.plain() | {"ticks": {}}).bricks == exported.bricks
    assert len(exported.with_bricks("s0", [("c", False)]).bricks["s0"]) == 2
    assert exported.only(["s1"]).bricks == {"s1": (("b", False),)}


@pytest.mark.parametrize(
    "document",
    [
        {"bricks": {"s": [["b", 1]]}, "ticks": {}},
        {"bricks": {"s": [["b"]]}, "ticks": {}},
        {"bricks": {"s": [["b", True]] * 51}, "ticks": {}},
        {"bricks": {f"s{number}": [] for number in range(SERVICES_MAX + 1)}, "ticks": {}},
        {"bricks": {"\ud800": []}, "ticks": {}},
        {"bricks": {}, "ticks": {"TSC": [0.0]}},
        {"bricks": {}, "ticks": {"TSC": [float("nan")]}},
        {"bricks": {}, "ticks": {"TSC": [1.0] * (TICKS_MAX + 1)}},
        {"bricks": {}, "ticks": {"TSC": 1.0}},
    ],
)
def test_an_invalid_saved_state_is_refused(document: dict[str, Any]) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        ExportedSeries.of(document)


def test_workers_with_other_orders_of_names_are_added_up_by_name() -> None:
    one, two = MadeUp("api"), MadeUp("api")
    for name in "ab":
        spans(5, brick=name, of=one)
    for name in "bac":
        spans(7, brick=name, of=two)
    series = SpanSeries(ExportedSeries())
    for _ in range(2):
        of = page(series, worker(one, 1), worker(two, 2))
        sums = {name: value(of, "brickd_span_seconds_sum", service="api", brick=name) for name in "abc"}
        assert sums == {"a": 12e-9, "b": 12e-9, "c": 7e-9}
    one.begin("a")
    spans(9, brick="b", of=one)  # a new path of known names
    one.end()
    of = page(series, worker(one, 1), worker(two, 2))
    assert value(of, "brickd_worker_span_seconds_sum", service="api", worker="api/1", brick="b") == 14e-9


def test_a_name_that_is_written_later_than_its_path_is_found() -> None:
    series, one = SpanSeries(ExportedSeries()), worker(spans(5), 1)
    unnamed = one._replace(reading=replace(one.reading, names=[one.reading.names[0], None]))
    assert {each["brick"] for each in labels(page(series, unnamed), "brickd_span_seconds_count")} == {"name#1"}
    of = page(series, one)
    assert value(of, "brickd_span_seconds_count", service="api", brick="gemm") == 1
    assert value(of, "brickd_span_seconds_count", service="api", brick="name#1") == 0


def test_a_service_without_workers_gives_its_places_back() -> None:
    series = SpanSeries(ExportedSeries())
    page(series, worker(spans(5), 1))
    series.write({}, {}, Exposition())
    assert series.exported.bricks == {}


@pytest.mark.ci
def test_a_fold_is_made_anew_at_times_so_that_old_bricks_do_not_pile_up() -> None:
    series = SpanSeries(ExportedSeries())
    for number in range(200):
        series.write({"api": [worker(spans(5, brick=f"b{number}"), number + 1)]}, {}, Exposition())
    (service,) = series._services.values()
    assert len(service._fold.keys) <= 65


def test_tables_of_a_wrong_size_are_refused() -> None:
    summaries, bounds = bytes(_reader.SUMMARY_BYTES), bytes(_reader.BUCKETS)
    good = (summaries, bytes(4), bytes(1), bytes(4), bounds, bounds)
    assert _reader.Durations().add(*good) == [(0, 0, 0)]
    for number in (1, 2, 4, 5):
        wrong = [*good]
        wrong[number] = bytes(3)
        with pytest.raises(ValueError, match="bounds"):
            _reader.Durations().add(*wrong)
    places = _reader.Durations().add(summaries, (7).to_bytes(4, "little"), bytes(1), bytes(4), bounds, bounds)
    assert places == [(0, 0, 0)], "a row without a place is left out"


def test_a_torn_summary_and_an_unknown_bound_give_no_impossible_number() -> None:
    summary = np.zeros(1, dtypes.dtype("summary"))
    summary["count"], summary["total"], summary["again"] = 1, 3, 5
    summary["histogram"][0, 0] = 1
    durations, bounds = _reader.Durations(), bytes([200] * _reader.BUCKETS)
    outer = bytes([_reader.PART_OUTER])
    assert durations.add(summary.tobytes(), bytes(4), outer, bytes(4), bounds, bounds) == [(1, 0, 0)]
    assert durations.row(0) == (1, 0, 0, (*[0] * (_reader.BOUNDS - 1), 1))
