"""What a running daemon shows of the last seconds, and of the workers' processes."""

from __future__ import annotations

import json
import re
from typing import Any

import psutil
import pytest
from conftest import Worker
from faults import Start
from running import running
from verbs import brickd

EARLY_AND_LATE = """
    early, late = brick.brick("early"), brick.brick("late")
    for n in range(30):
        with early: pass
    pause()
    for n in range(10):
        with late(elements=3): pass
    pause()
"""


def asked(verb: str, *options: str) -> Any:
    result = brickd(verb, "--json", *options)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def counts(document: Any) -> dict[str, int]:
    return {each["name"]: each["count"] for each in document["nodes" if "nodes" in document else "bricks"]}


def late(worker: Start) -> Worker:
    """One that worked before there was a daemon."""
    early = worker(EARLY_AND_LATE, BRICKD_SERVICE="api")
    early.paused()
    return early


def test_a_window_holds_what_was_recorded_since_the_daemon_looked_first(worker: Start) -> None:
    process = late(worker)
    with running() as daemon:
        daemon.until("worker_found")
        process.go()
        process.paused()
        for verb in ("bricks", "tree"):
            assert counts(asked(verb)) == {"early": 30, "late": 10}
            assert counts(asked(verb, "--over", "60s")) == counts(asked(verb, "--over", "10s")) == {"late": 10}
        assert counts(asked("status")) == {"late": 10}
        assert counts(asked("status", "--over", "start")) == {"early": 30, "late": 10}


def test_rates_are_over_the_time_that_the_window_names(worker: Start) -> None:
    process = late(worker)
    with running():
        process.go()
        process.paused()
        document = asked("bricks", "--over", "60s")
    (brick,) = document["bricks"]
    seconds = document["over_ns"] / 1e9
    assert 0 < seconds < 60
    assert abs(brick["count_per_second"] - 10 / seconds) <= 0.1
    assert abs(brick["elements_per_second"] - 30 / seconds) <= 0.1
    assert brick["elements_per_second_in_brick"] > brick["elements_per_second"]
    assert brick["min_ns"] is brick["max_ns"] is None  # nobody knows the extremes of a part of the time


@pytest.mark.slow
def test_a_worker_that_dies_takes_nothing_out_of_a_window(worker: Start) -> None:
    process = late(worker)
    with running() as daemon:
        process.go()
        process.paused()
        process.kill()
        daemon.until("worker_died")
        assert counts(asked("bricks", "--over", "60s")) == {"late": 10}
        assert counts(asked("bricks")) == {"early": 30, "late": 10}


def test_the_screen_says_over_what_time_it_counts(worker: Start) -> None:
    process = late(worker)
    with running():
        assert re.search(r"no spans in the last \d+ s", brickd("status").stdout)
        process.go()
        process.paused()
        for verb in ("status", "bricks", "tree"):
            shown = brickd(verb, "--over", "60s").stdout
            assert ", last " in shown
            assert "early" not in shown
            assert ", last " not in brickd(verb, "--over", "start").stdout


def test_without_a_daemon_there_are_no_windows(worker: Start) -> None:
    late(worker)
    for verb in ("status", "bricks", "tree"):
        refused = brickd(verb, "--over", "60s")
        assert refused.returncode == 3
        assert "(start one: brickd up -d; or --over start)" in refused.stderr
    assert counts(asked("status")) == {"early": 30}


def test_the_longest_span_of_a_window_is_no_order(worker: Start) -> None:
    refused = brickd("bricks", "--sort", "max", "--over", "10s")
    assert refused.returncode == 2
    assert "sort by p99, or over start" in refused.stderr


def test_the_daemon_tells_what_memory_a_worker_takes(worker: Start, prefix: str) -> None:
    process = late(worker)
    with running():
        (entry,) = asked("workers")["workers"]
        resident = psutil.Process(process.pid).memory_info().rss
        assert " RSS " in brickd("workers").stdout.splitlines()[0]
    assert entry["cpu_percent"] is None  # it was looked at once
    assert resident / 2 < entry["rss_bytes"] < resident * 2
    (entry,) = asked("workers")["workers"]
    assert entry["rss_bytes"] is None
    assert "RSS" not in brickd("workers").stdout
