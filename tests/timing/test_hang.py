"""`brickd hang` with real workers, and its verdicts on made-up workers."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from conftest import SHM, Worker
from faults import Start
from hypothesis import given
from hypothesis import strategies as st
from running import running
from verbs import brickd, document, started

from brickd.analysis.timing.hang import (
    ComparedLane,
    HangVerdict,
    LaneLook,
    LanePosition,
    State,
    Watched,
    compared,
    judge,
)
from brickd.analysis.timing.hang_text import sentence
from brickd.shm.open_spans import Open

QUICK = ("--watch", "0.05", "--longer", "0")
# The time between two readings; it is long enough for each process to get a processor.
FAIR = ("--watch", "0.5", "--longer", "0")
STUCK = "with brick.span('loop'), brick.span({!r}): pause()"
# The program reports when it has begun to record, and continues until its stdin is closed.
MOVING = """
import select, threading
def spin():
    moved = False
    with brick.span("loop"):
        while not select.select([0], [], [], 0.001)[0]:
            with brick.span("step"): pass
            if not moved: report("paused")
            moved = True
spin()
"""


def service(worker: Start, programs: Iterable[str]) -> list[Worker]:
    """Start workers of the service `api`; the index of a worker is the index of its program."""
    workers = [
        worker(program, BRICKD_SERVICE="api", BRICKD_WORKER=str(number)) for number, program in enumerate(programs)
    ]
    for each in workers:
        each.paused()
    return workers


def hang(*arguments: str, code: int = 0) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the verdict on the only service, and the open spans."""
    answer = document("hang", *(arguments or QUICK), code=code)
    (verdict,) = answer["services"]
    return verdict, answer["open"]


def odd(verdict: dict[str, Any]) -> dict[str, tuple[str, str | None]]:
    return {each["worker"]: (each["state"], each["brick"]) for each in verdict["odd"]}


@pytest.mark.ci
def test_hang_names_one_worker_of_eight_in_another_brick_after_the_fact(worker: Start) -> None:
    service(worker, [STUCK.format("moe_gemm" if number == 5 else "all_reduce") for number in range(8)])
    verdict, rows = hang(code=1)
    assert (verdict["service"], verdict["verdict"], verdict["brick"]) == ("api", "most_wait", "all_reduce")
    assert odd(verdict) == {"api/5": ("stuck", "moe_gemm")}
    assert verdict["text"].startswith("7 of 8 wait in all_reduce for ")
    assert verdict["text"].endswith("; api/5 is in moe_gemm")
    assert {(row["state"], row["open"], tuple(row["path"])) for row in rows} == {
        ("stuck", 2, ("loop", "all_reduce")),
        ("stuck", 2, ("loop", "moe_gemm")),
    }
    assert [row["since_ns"] for row in rows] == sorted((row["since_ns"] for row in rows), reverse=True)
    lines = brickd("hang", *QUICK, COLUMNS="80").stdout.splitlines()
    assert lines[0].startswith("api: 7 of 8 wait in all_reduce for ")
    assert len(lines) == 2 + 8
    assert max(map(len, lines[1:])) <= 80
    assert all(line.endswith("  loop") for line in lines[2:])
    alone = document("hang", *QUICK, "api/5", code=1)
    assert [row["worker"] for row in alone["open"]] == ["api/5"]
    assert alone["services"][0]["workers"] == 8


OUT_OF_STEP = """
with brick.span("rank 0" if {leads} else "forward"), brick.layer({layer}):
    with brick.span({within!r}), brick.span("all_reduce"): pause()
"""


@pytest.mark.ci
def test_hang_names_the_worker_in_another_all_reduce(worker: Start) -> None:
    step, behind = {"layer": 3, "within": "mlp"}, {"layer": 2, "within": "attention"}
    places = [step, step, step, behind]
    service(worker, [OUT_OF_STEP.format(leads=number == 0, **place) for number, place in enumerate(places)])
    verdict, _ = hang(code=1)
    assert (verdict["verdict"], verdict["brick"], verdict["layer"], verdict["within"]) == (
        "most_wait", "all_reduce", 3, "mlp",
    )  # fmt: skip
    (apart,) = verdict["odd"]
    assert apart.pop("since_ns") > 0
    assert apart == {"worker": "api/3", "state": "stuck", "brick": "all_reduce", **behind}
    assert verdict["text"].startswith("3 of 4 wait in all_reduce (layer 3, in mlp) for ")
    assert verdict["text"].endswith("; api/3 is in all_reduce (layer 2, in attention)")


@pytest.mark.ci
def test_hang_names_the_stuck_worker_among_idle_ones(worker: Start) -> None:
    idle = "with brick.span('step'): pass\npause()"
    service(worker, [idle, STUCK.format("moe_gemm"), idle, idle])
    verdict, _ = hang(code=1)
    assert (verdict["verdict"], odd(verdict)) == ("some_stuck", {"api/1": ("stuck", "moe_gemm")})
    assert verdict["text"].endswith("; 3 others are idle")


@pytest.mark.ci
def test_hang_names_the_stuck_worker_among_moving_ones(worker: Start) -> None:
    service(worker, [MOVING, STUCK.format("moe_gemm"), MOVING, MOVING])
    verdict, rows = hang(*FAIR, code=1)
    assert (verdict["verdict"], odd(verdict)) == ("some_stuck", {"api/1": ("stuck", "moe_gemm")})
    assert verdict["text"].endswith("; 3 others go on")
    assert rows[0]["worker"] == "api/1"
    assert {row["state"] for row in rows[1:]} == {"moving"}


@pytest.mark.ci
@pytest.mark.interpreter
def test_a_stopped_worker_is_stuck_where_it_is(worker: Start) -> None:
    workers = service(worker, [MOVING] * 3)
    workers[2].process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, workers[2].pid, os.WSTOPPED)
    verdict, rows = hang(*FAIR, code=1)
    assert verdict["verdict"] == "some_stuck"
    assert set(odd(verdict)) == {"api/2"}
    assert {row["worker"]: row["state"] for row in rows} == {"api/0": "moving", "api/1": "moving", "api/2": "stuck"}


def test_a_dead_worker_that_others_wait_for_is_named(worker: Start) -> None:
    workers = service(worker, [STUCK.format("all_reduce")] * 3)
    workers[1].kill()
    verdict, rows = hang(code=1)
    assert (verdict["verdict"], odd(verdict)) == ("most_wait", {"api/1": ("died", None)})
    assert verdict["text"].endswith("; api/1 died")
    dead = rows[-1]
    assert (dead["worker"], dead["state"], dead["brick"], dead["since_ns"]) == ("api/1", "died", "all_reduce", None)


THREADS = """
import threading
def serve():
    with brick.span("serve"):
        inside.wait()
        threading.Event().wait()
inside = threading.Barrier(2)
threading.Thread(target=serve, daemon=True).start()
inside.wait()
"""


@pytest.mark.ci
def test_a_thread_waiting_in_every_worker_hides_no_stuck_worker(worker: Start) -> None:
    service(worker, [THREADS + STUCK.format("moe_gemm" if number == 2 else "all_reduce") for number in range(4)])
    verdict, rows = hang(code=1)
    assert (verdict["verdict"], verdict["brick"]) == ("most_wait", "all_reduce")
    assert odd(verdict) == {"api/2": ("stuck", "moe_gemm")}
    assert len({(row["worker"], row["lane"]) for row in rows}) == 8
    assert len({row["thread"] for row in rows}) == 8


@pytest.mark.ci
def test_no_worker_is_named_if_all_wait_or_too_few_exist(worker: Start) -> None:
    two = service(worker, [STUCK.format("all_reduce"), STUCK.format("moe_gemm")])
    verdict, _ = hang()
    assert (verdict["verdict"], verdict["odd"]) == ("too_few", [])
    two[1].kill()
    third = [started(worker, STUCK.format("all_reduce"), BRICKD_SERVICE="batch") for _ in range(3)]
    reported = {each["service"]: each for each in document("hang", *QUICK)["services"]}
    assert (reported["batch"]["verdict"], reported["batch"]["odd"]) == ("all_wait", [])
    assert reported["batch"]["text"].startswith("all 3 wait in all_reduce for ")
    assert len(third) == 3


@pytest.mark.ci
def test_a_span_younger_than_requested_is_not_stuck(worker: Start) -> None:
    service(worker, [STUCK.format("all_reduce")] * 3)
    verdict = document("hang", "--watch", "0.01", "--longer", "3600")["services"][0]
    assert (verdict["verdict"], verdict["text"]) == ("none_stuck", "no worker is stuck: 3 go on")


def test_a_worker_without_open_spans_is_idle_and_has_a_row(worker: Start) -> None:
    service(worker, ["with brick.span('a'): pass\npause()"])
    verdict, (row,) = hang()
    assert (row["state"], row["brick"], row["lane"], row["path"]) == ("idle", None, None, [])
    assert verdict["text"] == "1 worker is too few to compare: 1 is idle"


def test_hang_reports_unjudged_workers(worker: Start, prefix: str) -> None:
    service(worker, [STUCK.format("a")])
    (SHM / f"{prefix}junk").write_bytes(b"\x01" * 8192)
    assert "not judged: 1 " in brickd("hang", *QUICK).stderr


# ---- the verdict

STEP = LanePosition("step", None, None)
PLACES = {
    "serve": LanePosition("serve", None, None),
    "all_reduce": LanePosition("all_reduce", 3, "mlp"),
    "all_reduce_below": LanePosition("all_reduce", 2, "mlp"),
    "all_reduce_before": LanePosition("all_reduce", 3, "attention"),
    "all_reduce_elsewhere": LanePosition("all_reduce", None, None),
    "moe_gemm": LanePosition("moe_gemm", 3, "mlp"),
}
LANES: dict[str, tuple[State, LanePosition | None]] = {
    "moves": ("moving", STEP),
    "idles": ("idle", None),
    **{name: ("stuck", place) for name, place in PLACES.items()},
}


def made(name: str, lanes: Iterable[str], *, alive: bool = True, age_s: float | None = 42) -> Watched:
    """Return a worker with these lanes: "moves", "idles", or the brick in which the lane is stuck."""
    before, after = {}, {}
    for number, does in enumerate(lanes):
        state, place = LANES[does]
        span = None
        if place is not None:
            path = (f"wrapper of {name}", place.within, place.brick) if place.within else (place.brick,)
            span = Open(place.brick, place.layer, None if age_s is None else round(age_s * 1e9), path)
        before[number] = LaneLook(1000 + number, (10, 9), int(span is not None), span)
        after[number] = before[number]._replace(activity=(11, 9)) if state == "moving" else before[number]
    return Watched(name, "api", alive, compared(before, after, alive=alive, longer_ns=1e9))


@pytest.mark.parametrize(
    ("path", "within"), [(("gemm",), None), (("mlp", "gemm"), "mlp"), (("step", "mlp", "gemm"), "mlp")]
)
def test_a_position_has_the_brick_directly_around_it(path: tuple[str, ...], within: str | None) -> None:
    lane = ComparedLane(0, LaneLook(1, (), 1, Open("gemm", 3, 9, path)), "stuck")
    assert Watched("api/0", "api", True, (lane,)).stuck == {LanePosition("gemm", 3, within): 9}


def names(verdict: HangVerdict) -> set[str]:
    return {each.worker for each in verdict.outliers}


WORKER = st.tuples(st.lists(st.sampled_from(sorted(LANES)), max_size=3), st.booleans(), st.integers(2, 50) | st.none())
SERVICE = st.lists(WORKER, max_size=8).map(
    lambda drawn: [
        made(f"api/{number}", lanes, alive=alive or number % 3 > 0, age_s=age)
        for number, (lanes, alive, age) in enumerate(drawn)
    ]
)


@pytest.mark.parametrize(
    ("lanes", "text"),
    [
        (7 * ["all_reduce"] + ["moe_gemm"], "7 of 8 wait in all_reduce for 42.0 s; api/7 is in moe_gemm"),
        (7 * ["all_reduce"] + ["moves"], "7 of 8 wait in all_reduce for 42.0 s; api/7 goes on"),
        (7 * ["all_reduce"] + ["idles"], "7 of 8 wait in all_reduce for 42.0 s; api/7 is idle"),
        (7 * ["serve all_reduce"] + ["serve moves"], "7 of 8 wait in all_reduce for 42.0 s; api/7 goes on"),
        (7 * ["serve all_reduce"] + ["serve"], "7 of 8 wait in all_reduce for 42.0 s; api/7 is in serve"),
        (
            3 * ["all_reduce"] + ["moe_gemm", "serve"],
            "3 of 5 wait in all_reduce for 42.0 s; api/3 is in moe_gemm, api/4 is in serve",
        ),
        (
            7 * ["all_reduce"] + ["all_reduce_below"],
            "7 of 8 wait in all_reduce (layer 3) for 42.0 s; api/7 is in all_reduce (layer 2)",
        ),
        (
            7 * ["all_reduce"] + ["all_reduce_before"],
            "7 of 8 wait in all_reduce (in mlp) for 42.0 s; api/7 is in all_reduce (in attention)",
        ),
        (
            5 * ["all_reduce"] + ["all_reduce_below", "all_reduce_elsewhere", "moe_gemm"],
            "5 of 8 wait in all_reduce (layer 3, in mlp) for 42.0 s; api/5 is in all_reduce (layer 2, in mlp), "
            "api/6 is in all_reduce (no layer, outermost), api/7 is in moe_gemm",
        ),
        (
            2 * ["all_reduce"] + 2 * ["all_reduce_below"],
            "no majority, so no worker is named: 2 wait in all_reduce (layer 2) for 42.0 s, "
            "2 wait in all_reduce (layer 3) for 42.0 s",
        ),
        (["moe_gemm"] + 7 * ["idles"], "api/0 is stuck in moe_gemm for 42.0 s; 7 others are idle"),
        (
            ["moe_gemm", "moves"] + 6 * ["idles"],
            "api/0 is stuck in moe_gemm for 42.0 s; 1 other goes on, 6 are idle",
        ),
        (["moe_gemm"] + 7 * ["moves"], "api/0 is stuck in moe_gemm for 42.0 s; 7 others go on"),
        (["serve moe_gemm"] + 7 * ["serve moves"], "api/0 is stuck in moe_gemm for 42.0 s; 7 others go on"),
        (["moe_gemm", "idles"] + 6 * ["moves"], "api/0 is stuck in moe_gemm for 42.0 s; 6 others go on, 1 is idle"),
        (8 * ["all_reduce"], "all 8 wait in all_reduce for 42.0 s: no worker is different"),
        (8 * ["serve moves"], "all 8 wait in serve for 42.0 s and continue in other threads: no worker is different"),
        (7 * ["moves"] + ["idles"], "no worker is stuck: 7 go on, 1 is idle"),
        (
            2 * ["all_reduce"] + 2 * ["moe_gemm"],
            "no majority, so no worker is named: 2 wait in all_reduce for 42.0 s, 2 wait in moe_gemm for 42.0 s",
        ),
        (
            ["moe_gemm", "moe_gemm", "moves", "idles"],
            "no majority, so no worker is named: 2 wait in moe_gemm for 42.0 s, 1 goes on, 1 is idle",
        ),
        (
            ["moves moe_gemm", "moves serve", "moves", "moves"],
            "no majority, so no worker is named: 1 waits in moe_gemm for 42.0 s, 1 waits in serve for 42.0 s, 4 go on",
        ),
        (["moe_gemm", "moves"], "2 workers are too few to compare: 1 waits in moe_gemm for 42.0 s, 1 goes on"),
    ],
)
def test_a_verdict_is_one_sentence(lanes: list[str], text: str) -> None:
    assert sentence(judge([made(f"api/{number}", each.split()) for number, each in enumerate(lanes)])) == text


def test_unknown_ages_are_left_out() -> None:
    ages = (42, None, 42, 42)
    waiting = [made(f"api/{number}", ["all_reduce"], age_s=age) for number, age in enumerate(ages)]
    assert sentence(judge(waiting)) == "all 4 wait in all_reduce: no worker is different"
    moving = [made(f"api/{number}", ["moves"]) for number in range(1, 4)]
    assert sentence(judge([made("api/0", ["moe_gemm"], age_s=None), *moving])) == (
        "api/0 is stuck in moe_gemm; 3 others go on"
    )


@pytest.mark.parametrize(
    ("living", "text"),
    [
        ("all_reduce", "3 of 4 wait in all_reduce for 42.0 s; api/3 died"),
        ("serve all_reduce", "3 of 4 wait in all_reduce for 42.0 s; api/3 died"),
        ("moves", "no worker is stuck: 3 go on, 1 died"),
        (
            "serve moves",
            "all 3 live ones wait in serve for 42.0 s and continue in other threads, 1 died: no worker is different",
        ),
    ],
)
def test_a_dead_worker_is_missed_only_if_the_others_do_not_continue(living: str, text: str) -> None:
    workers = [made(f"api/{number}", living.split()) for number in range(3)] + [made("api/3", ["moves"], alive=False)]
    assert sentence(judge(workers)) == text


@pytest.mark.parametrize(
    ("living", "text"),
    [
        ("all_reduce", "3 of 5 wait in all_reduce for 42.0 s; api/3 ended, api/4 died"),
        ("moves", "no worker is stuck: 3 go on, 1 ended, 1 died"),
        (
            "serve moves",
            "all 3 live ones wait in serve for 42.0 s and continue in other threads, 1 ended, 1 died: "
            "no worker is different",
        ),
    ],
)
def test_a_worker_that_ended_cleanly_did_not_die(living: str, text: str) -> None:
    workers = [made(f"api/{number}", living.split()) for number in range(3)]
    gone = [made(f"api/{number}", ["moves"], alive=False) for number in (3, 4)]
    assert sentence(judge([*workers, replace(gone[0], ended=True), gone[1]])) == text


@pytest.mark.parametrize(("ended", "state"), [(True, "ended"), (False, "died")])
def test_an_open_span_of_an_ended_worker_has_the_state_of_its_worker(*, ended: bool, state: str) -> None:
    look = LaneLook(7, (1,), 1, None)
    assert compared({0: look}, {0: look}, alive=False, ended=ended, longer_ns=0)[0].state == state


def test_the_verdict_has_a_worker_that_ended_in_its_state(worker: Start) -> None:
    with running() as daemon:
        (ends,) = service(worker, ["with brick.span('gemm'): pass\npause()"])
        daemon.until("worker_found")
        ends.go()
        ends.end()
        daemon.until("worker_ended")
        verdict, rows = hang()
    assert verdict["text"] == "1 worker is too few to compare: 1 ended"
    assert {row["state"] for row in rows} == {"ended"}


def test_of_bricks_with_equally_many_waiting_workers_the_latest_is_reported() -> None:
    def one(name: str, *bricks: str) -> Watched:
        lanes = [made(name, [brick], age_s=42 if brick == "serve" else 3600).lanes[0] for brick in bricks]
        return Watched(name, "api", True, tuple(lanes))

    workers = [one(f"api/{number}", "serve", "all_reduce") for number in range(3)] + [one("api/3", "moe_gemm")]
    assert sentence(judge(workers)) == "3 of 4 wait in serve for 42.0 s; api/3 is in moe_gemm"


@given(st.integers(0, 9), st.lists(st.sampled_from(sorted(LANES)), max_size=3), st.booleans())
def test_no_worker_is_named_if_all_are_equal(count: int, lanes: list[str], alive: bool) -> None:
    verdict = judge([made(f"api/{number}", lanes, alive=alive) for number in range(count)])
    assert verdict.outliers == ()
    assert sentence(verdict)


@given(SERVICE, st.randoms(use_true_random=False))
def test_the_order_of_workers_changes_nothing(workers: list[Watched], chance: Any) -> None:
    assert judge(workers) == judge(chance.sample(workers, len(workers)))


@given(SERVICE)
def test_outliers_are_fewer_than_half_of_three_or_more_workers(workers: list[Watched]) -> None:
    verdict = judge(workers)
    assert verdict.workers == len(workers)
    assert (verdict.kind in ("most_wait", "some_stuck")) == bool(verdict.outliers)
    if verdict.outliers:
        assert len(workers) >= 3
        assert 2 * len(verdict.outliers) < len(workers)
    assert sentence(verdict)


@given(
    st.integers(2, 8),
    st.sampled_from([("all_reduce",), ("serve", "all_reduce"), ("moves", "all_reduce")]),
    st.sampled_from([("moe_gemm",), ("serve", "moe_gemm"), ("moves", "moe_gemm"), ("moves",), ("idles",), ()])
    | st.sampled_from([(each,) for each in PLACES if each.startswith("all_reduce_")]),
    st.integers(0, 8),
)
def test_exactly_the_worker_that_does_not_wait_where_the_others_do_is_named(
    others: int, lanes: tuple[str, ...], different: tuple[str, ...], place: int
) -> None:
    workers = [made(f"api/{number}", lanes) for number in range(others)]
    workers.insert(min(place, others), made("odd", different))
    verdict = judge(workers)
    assert (verdict.kind, verdict.place, names(verdict)) == ("most_wait", PLACES["all_reduce"], {"odd"})
    if stuck := set(different) & (PLACES.keys() - {"serve"}):
        assert {verdict.outliers[0].place} == {PLACES[each] for each in stuck}


@given(
    st.lists(st.sampled_from([("moves",), ("moves", "idles"), ("idles",), ()]), min_size=2, max_size=8)
    | st.integers(2, 8).map(lambda others: others * [("moves", "serve")]),
    st.sampled_from([("moe_gemm",), ("moe_gemm", "idles"), ("moe_gemm", "moves")]),
    st.integers(0, 8),
)
def test_exactly_the_stuck_worker_among_moving_ones_is_named(
    others: list[tuple[str, ...]], stuck: tuple[str, ...], place: int
) -> None:
    everywhere = set(others[0]) & {"serve"}
    workers = [made(f"api/{number}", lanes) for number, lanes in enumerate(others)]
    workers.insert(min(place, len(others)), made("odd", (*stuck, *everywhere)))
    verdict = judge(workers)
    assert (verdict.kind, verdict.place, names(verdict)) == ("some_stuck", PLACES["moe_gemm"], {"odd"})


@pytest.mark.parametrize(
    ("before", "after", "age_s", "longer_s", "state"),
    [
        ((5, 4), (5, 4), 42, 1, "stuck"),
        ((5, 4), (5, 4), 42, 42, "stuck"),
        ((5, 4), (5, 4), 42, 43, "moving"),
        ((5, 4), (5, 4), None, 43, "stuck"),
        ((5, 4), (6, 4), 42, 1, "moving"),
        ((5, 4), (6, 5), 42, 1, "moving"),
        ((5, 4), (6, 4), None, 1, "moving"),
        (None, (5, 4), 42, 1, "moving"),
    ],
)
def test_an_unchanged_lane_is_stuck_unless_its_span_is_young(
    before: tuple[int, int] | None, after: tuple[int, int], age_s: int | None, longer_s: int, state: str
) -> None:
    span = Open("b", None, None if age_s is None else age_s * 10**9, ("b",))
    looks = {3: LaneLook(7, before, 1, span)} if before is not None else {}
    (lane,) = compared(looks, {3: LaneLook(7, after, 1, span)}, alive=True, longer_ns=longer_s * 1e9)
    assert (lane.number, lane.state) == (3, state)


def test_a_lane_without_open_spans_is_idle_unless_it_moved() -> None:
    still, moved = LaneLook(7, (5, 5), 0, None), LaneLook(7, (6, 6), 0, None)
    for after, state in ((still, "idle"), (moved, "moving")):
        each = Watched("w", "api", True, compared({0: still}, {0: after}, alive=True, longer_ns=0))
        assert (each.lanes[0].state, each.state) == (state, state)
        assert each.stuck == {}
