"""`brickd diff --fail-on slower`: an exit code for a worker whose bricks take longer."""

from __future__ import annotations

import pytest
from faults import Start
from verbs import brickd, document

RECORDED = """
for _ in range(calls):
    brick.brick("gemm").record(gemm)
    brick.brick("norm").record(50_000)
brick.init()
pause()
"""


def timed_worker(worker: Start, number: int, gemm: int, calls: int = 40) -> None:
    environment = {"BRICKD_SERVICE": "api", "BRICKD_WORKER": str(number), "BRICKD_CLOCK": "monotonic"}
    worker(f"gemm, calls = {gemm}, {calls}\n{RECORDED}", **environment).paused()


def test_a_slower_brick_exits_1_and_shows_times_without_any_fingerprint(worker: Start) -> None:
    timed_worker(worker, 0, 1_000_000)
    timed_worker(worker, 1, 1_600_000)
    ended = brickd("diff", "api/0", "api/1", "--fail-on", "slower")
    assert ended.returncode == 1
    assert ended.stdout.splitlines()[0] == "time: 1 brick differs, of 2"
    assert "only times are compared: " in ended.stderr
    (gemm,) = (row for row in document("diff", "api/0", "api/1", code=6)["timing"]["bricks"] if row["significant"])
    assert (gemm["brick"], gemm["difference_percent"]) == ("gemm", pytest.approx(60, abs=20))


def test_bricks_that_are_not_listed_are_counted(worker: Start) -> None:
    for number in range(2):
        lines = "".join(f'    brick.brick("b{brick}").record({brick + 1} * gemm)\n' for brick in range(5))
        program = RECORDED.replace('    brick.brick("gemm").record(gemm)\n', lines)
        environment = {"BRICKD_SERVICE": "api", "BRICKD_WORKER": str(number), "BRICKD_CLOCK": "monotonic"}
        worker(f"gemm, calls = 1_000_000, 40\n{program}", **environment).paused()
    shown = brickd("diff", "api/0", "api/1", "--fail-on", "slower").stdout.splitlines()
    assert (shown[0], shown[-1], len(shown)) == ("time: 0 bricks differ, of 6", "…3 more bricks: --all", 6)
    every = brickd("diff", "api/0", "api/1", "--fail-on", "slower", "--all").stdout.splitlines()
    assert (len(every), "more" in every[-1]) == (8, False)


def test_an_improvement_is_no_regression(worker: Start) -> None:
    timed_worker(worker, 0, 1_000_000)
    timed_worker(worker, 1, 1_600_000)
    assert brickd("diff", "api/1", "api/0", "--fail-on", "slower").returncode == 0


@pytest.mark.parametrize(("allowed", "code"), [("59.9", 1), ("60.1", 0), ("-1", 2)])
def test_the_tolerance_is_a_percentage(worker: Start, allowed: str, code: int) -> None:
    timed_worker(worker, 0, 1_000_000)
    timed_worker(worker, 1, 1_600_000)
    ended = brickd("diff", "api/0", "api/1", "--fail-on", "slower", "--slower-by", allowed)
    assert ended.returncode == code, ended.stdout + ended.stderr


def test_too_few_calls_do_not_pass(worker: Start) -> None:
    timed_worker(worker, 0, 1_000_000, calls=7)
    timed_worker(worker, 1, 1_600_000, calls=7)
    ended = brickd("diff", "api/0", "api/1", "--fail-on", "slower")
    assert (ended.returncode, "no brick ran 8 times or more in both workers" in ended.stderr) == (6, True)


@pytest.mark.ci
def test_more_than_two_workers_are_refused(worker: Start) -> None:
    for number in range(3):
        timed_worker(worker, number, 1_000_000)
    ended = brickd("diff", "api", "--fail-on", "slower")
    assert (ended.returncode, "compares 2 workers, not 3" in ended.stderr) == (2, True)


@pytest.mark.ci
def test_p95_and_the_coefficient_of_variation_are_columns_on_request(worker: Start) -> None:
    timed_worker(worker, 0, 1_000_000)
    for verb in ("bricks", "status", "tree"):
        plain, more = (brickd(verb, *columns).stdout for columns in ((), ("--column", "cv", "--column", "p95")))
        assert "P95" not in plain
        assert "CV" not in plain
        title = next(line for line in more.splitlines() if "P95" in line)
        assert title.index("P95") < title.index("CV") < title.index("P99")
        row = next(line for line in more.splitlines() if "gemm" in line)
        assert "0.00" in row.split()
    for verb, rows in (("bricks", "bricks"), ("tree", "nodes")):
        (gemm,) = (each for each in document(verb)[rows] if each["name"] == "gemm")
        assert gemm["p90_ns"] <= gemm["p95_ns"] <= gemm["p99_ns"]
        assert gemm["cv"] == 0


@pytest.mark.ci
def test_a_difference_that_may_be_chance_is_no_regression(worker: Start) -> None:
    for number, short in enumerate((5, 3)):
        environment = {"BRICKD_SERVICE": "few", "BRICKD_WORKER": str(number), "BRICKD_CLOCK": "monotonic"}
        program = f"for n in range(8): brick.brick('gemm').record(1_000_000 if n < {short} else 3_000_000)\npause()\n"
        worker(program, **environment).paused()
    ended = brickd("diff", "few/0", "few/1", "--fail-on", "slower")
    (gemm,) = document("diff", "few/0", "few/1", code=6)["timing"]["bricks"]
    assert gemm["difference_percent"] > 50
    assert (ended.returncode, gemm["significant"]) == (0, False)
