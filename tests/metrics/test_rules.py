"""The rules for Prometheus: each alert fires when its cause is present, and no alert fires in normal operation."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import get_args

import pytest
from deploy_files import RULES
from prometheus_server import needs_prometheus

from brickd.analysis.problem import Kind

pytestmark = [pytest.mark.slow, needs_prometheus]

HOST = 'job="brickd", instance="gpu-7"'
HOUR, DAY = 60, 24 * 60
PAGES = ("nan", "numbers", "weights")
Series = Mapping[str, str]


def series(name: str, **labels: str) -> str:
    inside = ", ".join([HOST, *(f'{key}="{value}"' for key, value in labels.items())])
    return f"{name}{{{inside}}}"


def problem(kind: str, service: str = "api", worker: str = "api/1", state: str = "active") -> str:
    return series("brickd_problem", service=service, worker=worker, kind=kind, state=state)


def started(number: int = 0) -> str:
    return series("brickd_worker_start_time_seconds", service="api", worker=f"api/{number}")


def constant(*parts: tuple[int, float | None]) -> str:
    """Return values, one for each minute.

    Each part is a number of minutes, and the value in these minutes. None means that scrapes fail, so there is no
    value.
    """
    return " ".join(f"{n}x{minutes - 1}" if n is not None else f"stale _x{minutes - 1}" for minutes, n in parts)


def counter(*parts: tuple[int, float]) -> str:
    """Return the values of a counter, one for each minute.

    Each part is a number of minutes, and how much the counter grows in each of them.
    """
    found, value = [], 0.0
    for minutes, step in parts:
        found.append(f"{value:g}+{step:g}x{minutes - 1}")
        value += minutes * step
    return " ".join(found)


def spans(*parts: tuple[int, int, float, float], brick: str = "gemm") -> Series:
    """Return the series of a brick.

    Each part is a number of minutes, the calls per minute, the fraction of calls above 10 ms, and the mean time of a
    call.
    """
    of = {"service": "api", "brick": brick}
    below = counter(*((minutes, calls * (1 - part)) for minutes, calls, part, _ in parts))
    every = counter(*((minutes, calls) for minutes, calls, _, _ in parts))
    name = "brickd_span_seconds"
    return {
        series(f"{name}_bucket", **of, le="0.003"): counter((sum(each[0] for each in parts), 0)),
        series(f"{name}_bucket", **of, le="0.01"): below,
        series(f"{name}_bucket", **of, le="0.03"): every,
        series(f"{name}_bucket", **of, le="+Inf"): every,
        series(f"{name}_count", **of): every,
        series(f"{name}_sum", **of): counter(*((minutes, calls * mean) for minutes, calls, _, mean in parts)),
    }


def evidence(proven_minutes: int, unproven_minutes: int, looked_at: int = 9, live: int = 3) -> Series:
    of, minutes = {"service": "api", "evidence": "input"}, proven_minutes + unproven_minutes
    name = "brickd_evidence_verdict"
    equal = constant((proven_minutes, 1), (unproven_minutes, None)) if proven_minutes else "_"
    return {
        series(name, **of, verdict="equal"): equal,
        series(name, **of, verdict="unproven"): f"_x{proven_minutes} {constant((unproven_minutes, 1))}",
        series("brickd_evidence_looked_at", **of): constant((minutes, looked_at)),
        series("brickd_workers", service="api", state="live"): constant((minutes, live)),
    }


def check(tmp_path: Path, given: Series, *expected: tuple[int, set[str]], every: int = 1) -> None:
    """Check which alerts fire in these minutes. The rules are evaluated at intervals of `every` minutes."""
    asked = 'count by (alertname) (ALERTS{alertstate="firing"})'
    group = {
        "interval": "1m",
        "input_series": [{"series": each, "values": values} for each, values in given.items()],
        "promql_expr_test": [
            {
                "expr": asked,
                "eval_time": f"{minute}m",
                "exp_samples": [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in sorted(names)],
            }
            for minute, names in expected
        ],
    }
    test = {
        "rule_files": [str(RULES)],
        "evaluation_interval": f"{every}m",
        "group_eval_order": ["brickd-recorded", "brickd"],  # by default, any order
        "tests": [group],
    }
    (tmp_path / "test.yml").write_text(json.dumps(test))  # JSON is YAML, too
    promtool(tmp_path, "test rules test.yml")


def promtool(folder: Path, command: str) -> None:
    done = subprocess.run(["promtool", *command.split()], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def never(minutes: range) -> list[tuple[int, set[str]]]:
    """Return the expectation that no alert fires in these minutes."""
    return [(minute, set()) for minute in minutes]


LONG_AGO = {started(): "0x2000", series("up"): "1x2000"}


def test_promtool_accepts_the_rules_and_the_example() -> None:
    for command in ("check rules --lint=all --lint-fatal brickd.rules.yml", "check config prometheus.yml"):
        promtool(RULES.parent, command)


@pytest.mark.parametrize("kind", get_args(Kind))
def test_a_problem_that_lasts_has_one_alert(tmp_path: Path, kind: str) -> None:
    given = {**LONG_AGO, problem(kind): constant((60, None), (60, 1))}
    wrong, lost = "BrickdWrongNumbers", "BrickdRecordsLost"
    name = {**dict.fromkeys(PAGES, wrong), "stuck": "BrickdWorkerStuck", "lost": lost, "uncounted": lost}
    check(tmp_path, given, (95, {name.get(kind, "BrickdProblem")}))


@pytest.mark.parametrize("kind", ["died", "lost", "uncounted", "daemon"])
def test_a_cause_that_happens_once_fires_nothing(tmp_path: Path, kind: str) -> None:
    given = {**LONG_AGO, problem(kind): constant((60, None), (10, 1), (30, None))}
    check(tmp_path, given, *never(range(60, 90)))


def test_a_deployment_of_a_quarter_of_an_hour_in_which_workers_die_fires_nothing(tmp_path: Path) -> None:
    given = {**LONG_AGO, problem("died", worker=""): constant((60, None), (15 + 10, 1), (30, None))}
    check(tmp_path, given, *never(range(60, 110)))


@pytest.mark.parametrize("kind", get_args(Kind))
def test_a_silenced_problem_fires_nothing(tmp_path: Path, kind: str) -> None:
    check(tmp_path, {**LONG_AGO, problem(kind, state="silenced"): "1x100"}, (100, set()))


ALL_THE_TIME = {started(): " ".join(f"{60 * minute}x4" for minute in range(0, 120, 5))}


@pytest.mark.parametrize(
    ("kind", "name", "minutes", "starts"),
    [
        ("weights", "BrickdWrongNumbers", 2, LONG_AGO),
        ("weights", "BrickdWrongNumbersWhileWorkersStart", 30, ALL_THE_TIME),
        ("stuck", "BrickdWorkerStuck", 3, LONG_AGO),
        ("lost", "BrickdRecordsLost", 15, LONG_AGO),
        ("died", "BrickdProblem", 30, LONG_AGO),
    ],
)
def test_a_failed_scrape_does_not_delay_an_alert(
    tmp_path: Path, kind: str, name: str, minutes: int, starts: Series
) -> None:
    given = {**starts, problem(kind): constant((60, None), (1, 1), (1, None), (58, 1))}
    check(tmp_path, given, (59 + minutes, set()), (60 + minutes, {name}))


def test_a_deployment_with_new_weights_fires_nothing(tmp_path: Path) -> None:
    starts = {started(n): f"0x{59 + 4 * n} {60 * (60 + 4 * n)}x60" for n in range(3)}
    given = {**starts, problem("weights"): constant((60, None), (13, 1), (40, None))}
    check(tmp_path, given, *never(range(60, 100, 2)))


def test_wrong_numbers_after_a_deployment_page_once_it_is_over(tmp_path: Path) -> None:
    given = {started(): "0x59 3600x100", problem("weights"): constant((60, None), (100, 1))}
    check(tmp_path, given, (76, set()), (77, {"BrickdWrongNumbers"}))


def test_a_start_in_another_service_delays_nothing(tmp_path: Path) -> None:
    other = series("brickd_worker_start_time_seconds", service="batch", worker="batch/0")
    given = {**LONG_AGO, other: "3600x100", problem("weights"): constant((60, None), (60, 1))}
    check(tmp_path, given, (62, {"BrickdWrongNumbers"}))


@pytest.mark.parametrize(
    ("given", "minute", "fires"),
    [
        (evidence(20 * HOUR, 13 * HOUR), 33 * HOUR, True),
        (evidence(20 * HOUR, 12 * HOUR), 32 * HOUR - 10, False),
        (evidence(20 * HOUR, 37 * HOUR), 57 * HOUR, False),
        (evidence(0, 33 * HOUR), 33 * HOUR, False),
        (evidence(20 * HOUR, 13 * HOUR, looked_at=0), 33 * HOUR, False),
        (evidence(20 * HOUR, 13 * HOUR, live=1), 33 * HOUR, False),
    ],
    ids=["12 hours unproven", "not yet 12 hours", "a day later", "never proven", "nothing recorded", "one worker"],
)
def test_a_service_that_was_compared_and_is_no_more_fires(
    tmp_path: Path, given: Series, minute: int, fires: bool
) -> None:
    check(tmp_path, given, (minute, {"BrickdUnproven"} if fires else set()), every=10)


QUICK, SLOW = (0.001, 0.005), (0.5, 0.012)  # the part of the calls above 10 ms, and the mean
ODD = (0.5, 0.0055)  # a p99 in the next bucket, with nearly the same mean


@pytest.mark.parametrize(
    ("given", "fires"),
    [
        (spans((DAY, 600, *QUICK), (HOUR, 600, *SLOW)), True),
        (spans((DAY, 600, *QUICK), (HOUR, 600, *ODD)), False),
        (spans((DAY, 600, *QUICK), (HOUR, 30, *SLOW)), False),
        (spans((DAY, 600, *SLOW), (HOUR, 600, *SLOW)), False),
        (spans((HOUR, 600, *QUICK), (HOUR, 600, *SLOW), (DAY - 2 * HOUR, 600, *QUICK), (HOUR, 600, *SLOW)), False),
        (spans((DAY, 0, *QUICK), (HOUR, 600, *SLOW)), False),
        (spans((DAY, 600, *QUICK), (HOUR, 600, *SLOW), brick="other"), False),
    ],
    ids=[
        "slower",
        "mean as before",
        "few calls",
        "always slow",
        "slow yesterday an hour later",
        "none yesterday",
        "other bricks",
    ],
)
def test_a_brick_that_is_slower_than_yesterday_fires(tmp_path: Path, given: Series, fires: bool) -> None:
    check(tmp_path, given, (DAY + 50, {"BrickdSlowerThanYesterday"} if fires else set()), every=10)


def test_a_brick_as_slow_as_a_week_ago_fires_nothing(tmp_path: Path) -> None:
    given = spans((HOUR, 600, *SLOW), (7 * DAY - HOUR, 600, *QUICK), (HOUR, 600, *SLOW))
    check(tmp_path, given, (7 * DAY + 50, set()), every=10)


def test_a_restart_of_the_daemon_fires_nothing(tmp_path: Path) -> None:
    began = series("brickd_daemon_start_time_seconds")
    given = {series("up"): constant((60, 1), (1, 0), (60, 1)), began: constant((60, 0), (1, None), (60, 3660))}
    check(tmp_path, given, *never(range(55, 80)))


def test_a_daemon_that_stays_away_fires(tmp_path: Path) -> None:
    given = {series("up"): constant((60, 1), (60, 0))}
    check(tmp_path, given, (64, set()), (65, {"BrickdDaemonDown"}))


def test_a_daemon_that_starts_again_and_again_fires(tmp_path: Path) -> None:
    starts = "0x29 1800x9 2400x9 3000x60"
    check(tmp_path, {series("brickd_daemon_start_time_seconds"): starts}, (52, {"BrickdDaemonRestarts"}))
    twice = "0x29 1800x9 2400x60"
    check(tmp_path, {series("brickd_daemon_start_time_seconds"): twice}, (52, set()))


@pytest.mark.parametrize(("file", "fires"), [("/var/lib/x/brickd.prom", True), ("/var/lib/x/smart.prom", False)])
def test_a_file_of_metrics_that_gets_old_fires(tmp_path: Path, file: str, fires: bool) -> None:
    given = {f'node_textfile_mtime_seconds{{instance="gpu-7", file="{file}"}}': "0+60x60 3600x60"}
    check(tmp_path, given, (60, set()), (69, {"BrickdDaemonFileOld"} if fires else set()))


def test_a_service_in_which_all_is_well_fires_nothing_for_nine_days(tmp_path: Path) -> None:
    given = {
        **spans((9 * DAY, 600, *QUICK)),
        **evidence(9 * DAY, 1),
        started(): f"0x{9 * DAY}",
        series("up"): f"1x{9 * DAY}",
        series("brickd_daemon_start_time_seconds"): f"0x{9 * DAY}",
    }
    check(tmp_path, given, (9 * DAY, set()), every=10)
