"""The last day as a real daemon keeps it: what it counts for each service, and what is left after a kill."""

from __future__ import annotations

import json
import time
from datetime import datetime
from typing import Any

import pytest
from faults import Start
from running import running
from verbs import brickd

WORKING = """
    import time
    b = brick.brick("work")
    while True:
        with b: time.sleep(0.01)
"""
_WAIT_S = 60.0


def counted(*arguments: str) -> dict[str, Any] | None:
    result = brickd("bricks", *arguments, "--json")
    return json.loads(result.stdout) if result.returncode == 0 else None


def until(spans: int, *arguments: str) -> dict[str, Any]:
    """Wait until the last day has more than this number of spans."""
    end = time.monotonic() + _WAIT_S
    while time.monotonic() < end:
        document = counted("--over", "1h", *arguments)
        # Until the first slot is stored, the answer comes from the window and has no `from`.
        if (
            document is not None
            and document["from"] is not None
            and sum(brick["count"] for brick in document["bricks"]) > spans
        ):
            return document
    raise AssertionError(brickd("bricks", "--over", "1h").stderr)


def history(*names: str) -> list[dict[str, Any]]:
    return list(json.loads(brickd("history", *names, "--every", "10s", "--json").stdout)["slots"])


def until_died() -> None:
    end = time.monotonic() + _WAIT_S
    while not json.loads(brickd("status", "--json").stdout)["problems"]:
        assert time.monotonic() < end
        time.sleep(0.1)


def workers_and_problems(at: float) -> tuple[list[str], list[str]]:
    """Return the names of live workers, and the kinds of problems, at a time."""
    document = json.loads(brickd("status", "--at", f"@{at}", "--json").stdout)
    live = [each["name"] for each in document["workers"] if each["state"] == "live"]
    return live, [each["kind"] for each in document["problems"]]


@pytest.mark.slow
def test_the_last_day_counts_by_service_and_survives_a_killed_daemon(worker: Start) -> None:
    worker(WORKING, BRICKD_SERVICE="api")
    batch = worker(WORKING, BRICKD_SERVICE="batch")
    with running() as daemon:
        first = until(0)
        assert [brick["worst_worker"] for brick in first["bricks"]] == [None]
        both, api = until(0), until(0, "api")
        assert 0 < api["bricks"][0]["count"] < both["bricks"][0]["count"]
        assert api["from"] < api["to"]
        tree = json.loads(brickd("tree", "api", "--over", "1h", "--json").stdout)
        assert [node["name"] for node in tree["nodes"]] == ["work"]
        shown = brickd("status", "--over", "1h")
        assert "WORST WORKER" not in shown.stdout
        refused = brickd("bricks", "api/0", "--over", "1h")
        assert (refused.returncode, "api/0 is a worker, expected a service (or use --over 60s;" in refused.stderr) == (
            2,
            True,
        )
        assert "by worker" not in brickd("bricks", "--by", "layer", "--over", "1h").stderr
        assert brickd("bricks", "--by", "worker", "--over", "1h").returncode == 2
        known = until(0)["bricks"][0]["count"]
        slots = history()
        worker_slots = history("api/0")
        assert sum(slot["count"] for slot in slots) >= known
        of_service = history("api")[: len(worker_slots)]
        assert [slot["count"] for slot in worker_slots] == [slot["count"] for slot in of_service], "api has one worker"
        daemon.kill()  # at the first snapshot, the daemon saved what it had seen
    with running():
        again = until(known)
        now = time.time()
        assert workers_and_problems(now) == (["api/0", "batch/0"], [])
        assert history()[: len(slots)] == slots, "every finished slot is there"
        assert history("api/0")[: len(worker_slots)] == worker_slots
        assert again["from"] == first["from"]
        assert (
            again["over_ns"]
            < (datetime.fromisoformat(again["to"]) - datetime.fromisoformat(again["from"])).total_seconds() * 1e9
        )
        batch.kill()
        until_died()
        assert workers_and_problems(now) == (["api/0", "batch/0"], []), "this is the past now"
        assert brickd("prune").returncode == 0
        gone = until(0, "batch")
        assert gone["workers"] == 1, "a service without a worker now is still found by name"
