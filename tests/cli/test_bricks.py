"""`brickd bricks` as a person runs it, and its totals over made-up workers."""

from __future__ import annotations

from collections import defaultdict

import pytest
from faults import Start
from hypothesis import given
from hypothesis import strategies as st
from made_up_workers import MadeUp, named, programs
from verbs import brickd, document, sheet, started

from brickd.datasources.shared_memory import SharedMemory
from brickd.model.brick_totals import bricks, names_in
from brickd.model.summary_fold import SummaryFold
from brickd.query.queries import SORTS, By
from brickd.shm import _reader

SPANS = """
norm, gemm = brick.brick("norm", "norm"), brick.brick("gemm", "ffn")
for number in range(3):
    with brick.layer(number):
        with norm(elements=2, bytes=8):
            with gemm: pass
for _ in range(5):
    with brick.span("free"): pass
pause()
"""


# Times that the host passes do not change from one reading to the next. Times from a clock are converted in each
# reading, and may differ by rounding.
GIVEN = """
norm, gemm = brick.brick("norm", category="norm"), brick.brick("gemm", category="ffn")
slowness = int(os.environ.get("BRICKD_SLOWNESS", "1"))
for number in range(3):
    with brick.layer(number):
        norm.record(1000 * slowness, elements=2, bytes=8)
        gemm.record(700 * slowness)
for _ in range(5):
    brick.brick("free").record(20 * slowness)
pause()
"""


def names(reported: dict[str, object]) -> list[str]:
    assert isinstance(reported["bricks"], list)
    return [each["name"] for each in reported["bricks"]]


COMPUTING = """
b = brick.brick("gemm", "ffn")
b.record(1_000_000, bytes=2_000_000, flops=8_000_000)
b.record(3_000_000, bytes=6_000_000, flops=24_000_000)
brick.brick("copy").record(1_000_000, bytes=4)
pause()
"""


LAUNCHING = """
for layer in range(2):
    with brick.layer(layer), brick.span("mlp"):
        brick.kernel("gemm", 16, 256, flops=8_000_000, bytes=2_000_000)       # its time comes to be known later
        brick.kernel("norm", 16, 256, flops=8_000_000, bytes=2_000_000)       # of one of two it does not
        brick.kernel("copy", 16, 256, flops=1_000, bytes=500, elapsed_ns=1_000)
        with brick.span("mlp.own"):
            brick.kernel("mlp.own", 16, 256, flops=8_000_000, bytes=2_000_000)  # a launch takes no time of a device
        brick.brick("gemm").record(1_000_000)
        if layer: brick.brick("norm").record(1_000_000)
pause()
"""


def test_flops_and_bytes_of_launches_are_shown_only_with_complete_times(worker: Start) -> None:
    started(worker, LAUNCHING)
    rows = {each["name"]: each for each in document("bricks")["bricks"]}
    known = {name: (row["flops"], row["bytes"], row["total_ns"]) for name, row in rows.items()}
    assert known["gemm"] == (16_000_000, 4_000_000, 2_000_000)
    assert known["norm"] == (0, 0, 1_000_000), "the time may belong to either launch"
    assert known["copy"] == (2_000, 1_000, 2_000)
    assert known["mlp.own"][:2] == (0, 0), "the host's span around a launch is not the time of the kernel"
    by_layer = [each for each in document("bricks", "--by", "layer")["bricks"] if each["name"] in ("gemm", "norm")]
    assert {(each["name"], each["layer"]): each["flops"] for each in by_layer} == {
        ("gemm", 0): 8_000_000,
        ("gemm", 1): 8_000_000,
        ("norm", 1): 8_000_000,
    }


def test_bricks_with_flops_and_bytes_show_their_speed_and_intensity(
    worker: Start,
) -> None:
    for _ in range(2):
        started(worker, COMPUTING)
    gemm, copy = document("bricks")["bricks"]
    assert [gemm[key] for key in ("flops", "flops_per_second_in_brick", "flops_per_byte")] == [64_000_000, 8e9, 4]
    assert [copy[key] for key in ("flops", "flops_per_second_in_brick", "flops_per_byte")] == [0, None, None]
    screen = brickd("bricks", "--sort", "flops", COLUMNS="300").stdout.splitlines()
    assert "FLOP/S IN BRICK  FLOP/BYTE" in screen[0]
    assert "8.0G          4" in screen[1]


def test_without_flops_no_column_shows_them(worker: Start) -> None:
    started(worker)
    assert "FLOP" not in brickd("bricks", COLUMNS="300").stdout


@pytest.mark.ci
def test_bricks_match_status_and_add_share_and_rate(worker: Start) -> None:
    for slowness, service in enumerate(("api", "api", "batch"), 1):
        started(worker, GIVEN, BRICKD_SERVICE=service, BRICKD_SLOWNESS=str(slowness))
    answer = document("bricks")
    shares = sum(each.pop("share_percent") for each in answer["bricks"])
    assert shares == pytest.approx(100, abs=0.1)
    rates = {each["name"]: each["elements_per_second_in_brick"] for each in answer["bricks"]}
    norm = next(each for each in answer["bricks"] if each["name"] == "norm")
    rate = norm["elements"] / norm["total_ns"] * 1e9
    assert rates == {"norm": pytest.approx(rate, rel=1e-3), "gemm": None, "free": None}
    assert answer["bricks"] == document("status")["bricks"]
    assert answer["recorded_ns"] == document("tree")["recorded_ns"] == sum(each["self_ns"] for each in answer["bricks"])
    assert answer["rest"] == {"bricks": 0, "count": 0, "self_ns": 0, "share_percent": 0}
    assert {each["count"] for each in document("bricks", "batch")["bricks"]} == {3, 5}


@pytest.mark.ci
def test_bricks_can_be_grouped_by_worker_service_or_layer(worker: Start) -> None:
    for service in ("api", "api", "batch"):
        started(worker, SPANS, BRICKD_SERVICE=service)
    counts: dict[str, dict[object, int]] = {}
    for by in ("worker", "service", "layer"):
        answer = document("bricks", "--by", by)
        counts[by] = {each[by]: each["count"] for each in answer["bricks"] if each["name"] == "norm"}
        assert sum(each["count"] for each in answer["bricks"]) == 3 * 11
    assert counts == {
        "worker": {"api/0": 3, "api/1": 3, "batch/0": 3},
        "service": {"api": 6, "batch": 3},
        "layer": {0: 3, 1: 3, 2: 3},
    }
    (free,) = (each for each in document("bricks", "--by", "layer")["bricks"] if each["name"] == "free")
    assert (free["layer"], free["count"]) == (None, 15)
    (line,) = (line for line in brickd("bricks", "--by", "layer").stdout.splitlines() if line.startswith("free"))
    assert line.split()[1] == "-"
    assert next(row for row in sheet("bricks", "--by", "layer") if row["name"] == "free")["layer"] == ""


@pytest.mark.ci
def test_bricks_are_sorted_by_the_requested_column(worker: Start) -> None:
    for _ in range(2):
        started(worker, SPANS)
    for sort, key in (("self", "self_ns"), ("count", "count"), ("p99", "p99_ns"), ("spread", "spread")):
        values = [each[key] for each in document("bricks", "--sort", sort)["bricks"]]
        assert values == sorted(values, reverse=True)
    assert names(document("bricks", "--sort", "name")) == ["free", "gemm", "norm"]


def test_a_brick_is_sorted_by_the_value_that_its_entry_has(worker: Start) -> None:
    for elements in ("elements=2, bytes=8", "flops=2.5"):
        started(worker, SPANS.replace("elements=2, bytes=8", elements))
    found = bricks(SharedMemory().survey().workers)
    assert len(found) == 3
    for brick in found:
        entry = brick.document()
        assert [brick.figure(key) for key in SORTS.values()] == [entry[key] for key in SORTS.values()]
    assert names(document("bricks", "--sort", "name")) == ["free", "gemm", "norm"]


def test_bricks_cut_off_by_top_are_counted(worker: Start) -> None:
    started(worker, SPANS)
    whole, cut = document("bricks"), document("bricks", "--top", "1")
    assert names(cut) == names(whole)[:1]
    rest = whole["bricks"][1:]
    assert cut["rest"]["bricks"] == 2
    assert cut["rest"]["count"] == sum(each["count"] for each in rest)
    assert cut["rest"]["self_ns"] == sum(each["self_ns"] for each in rest) > 0
    lines = brickd("bricks", "--top", "1", COLUMNS="80").stdout.splitlines()
    assert len(lines) == 3
    assert lines[2].startswith("…2 more: ")
    assert len(sheet("bricks", "--top", "1")) == 1


def test_a_selected_category_keeps_the_shares_of_the_whole(worker: Start) -> None:
    started(worker, GIVEN)
    shares = {each["name"]: each["share_percent"] for each in document("bricks")["bricks"]}
    (gemm,) = document("bricks", "--category", "ffn")["bricks"]
    assert (gemm["name"], gemm["share_percent"]) == ("gemm", shares["gemm"])
    assert names(document("bricks", "--category", "OTHER")) == ["free"]


def test_an_unknown_category_column_or_group_is_refused_with_the_choices(worker: Start) -> None:
    started(worker, SPANS, BRICKD_SERVICE="api")
    for arguments, near in (
        (["--category", "nrom"], "did you mean norm?"),
        (["--category", "zzz\x1b"], "there are ffn, norm, other"),
        (["--sort", "shelf"], "'self', 'total', "),
        (["--by", "thread"], "'worker', 'service', 'layer'"),
        (["--by", "worker", "--sort", "spread"], "give one of them"),
    ):
        ended = brickd("bricks", *arguments)
        assert (ended.returncode, ended.stdout) == (2, "")
        assert near in ended.stderr
        assert "\x1b" not in ended.stderr


@pytest.mark.ci
def test_the_sort_column_is_shown_on_a_screen_of_any_width(worker: Start) -> None:
    started(worker, SPANS, BRICKD_SERVICE="a service with a long name")
    for sort, title in (
        ("bytes", "BYTES"),
        ("elements", "ELEMENTS"),
        ("self", "SELF"),
        ("p99", "P99"),
        ("name", "BRICK"),
    ):
        for columns in (24, 50, 79):
            lines = brickd("bricks", "--sort", sort, "--by", "worker", COLUMNS=str(columns)).stdout.splitlines()
            assert {"BRICK", title} <= set(lines[0].split())
            assert max(map(len, lines)) <= columns


def test_a_worker_without_spans_has_no_bricks(worker: Start) -> None:
    started(worker, "brick.init()\npause()")
    assert brickd("bricks").stdout == "no spans yet\n"
    assert document("bricks")["bricks"] == []


def test_launches_count_whichever_of_several_workers_makes_them() -> None:
    silent, launching = MadeUp(), MadeUp()
    silent.begin("norm")
    silent.spend(3)
    silent.end()
    launching.give("gemm", 10)
    launching.mark("gemm", _reader.UNIT_LAUNCHED, size_bytes=7)
    for made in ([silent, launching], [launching, silent]):
        assert {brick.name: brick.row["bytes"] for brick in bricks(named(made))} == {"norm": 0, "gemm": 7}


def test_a_recursive_brick_has_its_own_time_while_the_outermost_span_is_open(worker: Start) -> None:
    program = """
loop = brick.brick("loop")
with loop:
    with loop(elements=7): pass
    pause()
"""
    started(worker, program)
    for verb in ("bricks", "status"):
        (loop,) = document(verb)["bricks"]
        assert loop["total_ns"] == loop["self_ns"] > 0
    rate = document("bricks")["bricks"][0]["elements_per_second_in_brick"]
    assert rate == pytest.approx(7 / loop["self_ns"] * 1e9, rel=0.01)


@given(st.lists(programs(whole=False), max_size=4), st.sampled_from([None, "worker", "service", "layer"]))
def test_no_total_time_is_less_than_the_self_time(made: list[MadeUp], by: By | None) -> None:
    assert all(brick.row["total_ns"] >= brick.row["self_ns"] for brick in bricks(named(made), by))


@given(st.lists(programs(), max_size=4), st.sampled_from(["worker", "service", "layer"]))
def test_the_sum_of_the_groups_is_the_whole(made: list[MadeUp], by: By) -> None:
    workers = named(made)
    counts, times = defaultdict[str, int](int), defaultdict[str, float](float)
    for part in bricks(workers, by):
        counts[part.name] += part.row["count"]
        times[part.name] += part.row["self_ns"]
    whole = bricks(workers)
    assert counts == {brick.name: brick.row["count"] for brick in whole}
    assert times == {brick.name: pytest.approx(brick.row["self_ns"]) for brick in whole}
    assert sum(sum(map(len, (sums.durations for sums in each.sums))) for each in made) == sum(counts.values())


@given(st.lists(programs(), max_size=4), st.sampled_from(["worker", "service"]))
def test_a_group_has_the_totals_of_its_workers(made: list[MadeUp], by: By) -> None:
    workers, attribute = named(made), {"worker": "name", "service": "service"}[by]
    alone = {}
    for group in {getattr(worker, attribute) for worker in workers}:
        for brick in bricks(worker for worker in workers if getattr(worker, attribute) == group):
            alone[brick.name, group] = (brick.row["count"], brick.row["total_ns"], brick.worst_worker)
    assert {
        (part.name, part.group): (part.row["count"], part.row["total_ns"], part.worst_worker)
        for part in bricks(workers, by)
    } == alone


@pytest.mark.ci
@given(st.lists(programs(), max_size=5))
def test_cached_keys_of_a_reading_serve_only_equal_readings(made: list[MadeUp]) -> None:
    shared, own = SummaryFold[str](), SummaryFold[str]()
    for each in [*made, *made]:
        reading = each.reading()
        name_of = names_in(reading, {})
        shared.add(reading, lambda path, _: name_of(path.name))  # noqa: B023
        own.add(reading, lambda path, _: name_of(path.name), group=object())  # noqa: B023
    assert shared.keys == own.keys
    assert [shared.row(number) for number in range(len(own.keys))] == [own.row(n) for n in range(len(own.keys))]
