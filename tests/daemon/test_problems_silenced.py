"""Problems in a real daemon: ids, silences, events, and what survives a restart."""

from __future__ import annotations

from typing import Any

import pytest
from faults import Start
from running import Running, running, until
from verbs import brickd, document, started

from brickd.client.client import ask
from brickd.screens.health import Bounds, conditions

OFF = "recording is off in 1 worker of api"


def with_a_problem(daemon: Running) -> str:
    """Turn recording off, which is a problem; return the id of the problem."""
    daemon.until("worker_found")
    daemon.ask("/set", b"service=api&recording=off")
    (problem,) = document("status")["problems"]
    assert (problem["kind"], problem["service"], problem["workers"], problem["text"]) == ("off", "api", ["api/0"], OFF)
    return str(problem["id"])


def test_a_silenced_problem_is_counted_but_not_listed_until_unsilenced(worker: Start, prefix: str) -> None:
    started(worker, BRICKD_SERVICE="api")
    with running() as daemon:
        id_ = with_a_problem(daemon)
        assert brickd("silence").stdout == "no problem is silenced\n"
        shown = brickd("silence", id_, "--for", "30m").stdout
        assert shown.startswith(f"! {id_} {OFF}  brickd set --recording on api  (silenced until 20")
        silenced = daemon.until("silenced")
        assert (silenced["problem"], silenced["text"].startswith(f"{id_} is silenced until ")) == (id_, True)
        status = document("status")
        assert (status["problems"], [each["id"] for each in status["silenced"]]) == ([], [id_])
        assert brickd("status").stdout.splitlines()[0].endswith("  no problem, 1 silenced")
        assert brickd("workers").stdout.splitlines()[-1] == "1 silenced problem: brickd silence"
        (listed,) = document("silence")["silenced"]
        assert listed["silenced_until"] == status["silenced"][0]["silenced_until"]
        daemon.end()
    with running():
        assert [each["id"] for each in document("status")["silenced"]] == [id_], "a restart keeps the silence"
        assert brickd("silence", id_, "--off").stdout == "no problem is silenced\n"
        after = document("status")
        assert ([each["id"] for each in after["problems"]], after["silenced"]) == ([id_], [])
        assert after["problems"][0]["since"] <= status["silenced"][0]["seen"], (
            "a restart keeps the time when the problem began"
        )


@pytest.mark.ci
def test_a_status_stream_has_problems_seen_within_the_requested_time(worker: Start, prefix: str) -> None:
    started(worker, BRICKD_SERVICE="api").kill()

    def streamed(*active_for: tuple[str, str]) -> list[str]:
        name, shown = next(ask("status/stream", active_for).events())
        assert name == "status"
        return [each["kind"] for each in shown["problems"]]

    with running() as daemon:
        assert streamed() == ["died"]
        until(lambda: not streamed(("active-for", "0")))
        assert (streamed(), streamed(("active-for", "1h"))) == (["died"], ["died"])
        brickd("set", "--threshold", "active_for=1s")
        until(lambda: not streamed())
        assert streamed(("active-for", "1h")) == ["died"]
        daemon.end()


def test_a_check_accepts_only_the_silenced_problem() -> None:
    def status(problems: list[str], silenced: list[str]) -> dict[str, Any]:
        return {
            "workers": [{"lost": 9000, "together": 1, "state": "live", "set": None}],
            "daemon": None,
            **dict.fromkeys(("diverged", "weights", "stragglers", "waiting", "judged_age_ns", "alarms")),
            "removed": {"unasked_spans": 7},
            "ledger": {"lost": {"spans": 9000, "details": 0, "events": 0}},
            "problems": [{"kind": kind} for kind in problems],
            "silenced": [{"kind": kind} for kind in silenced],
        }

    def unhealthy(problems: list[str], silenced: list[str]) -> list[str]:
        return [each.name for each in conditions(status(problems, silenced), None, Bounds()) if not each.healthy]

    assert unhealthy(["lost", "uncounted"], []) == ["lost", "removed"]
    assert unhealthy(["uncounted"], ["lost"]) == ["removed"]
    assert unhealthy([], ["lost", "uncounted"]) == []
    assert unhealthy(["lost"], ["lost", "uncounted"]) == ["lost"], "a problem of another service is still active"
    (lost, *_) = conditions(status([], ["lost"]), None, Bounds())
    assert (lost.seen, lost.wanted, lost.command) == (
        "9,000 lost (9,000 spans)",
        "anything, because it is silenced",
        None,
    )


def test_an_invalid_silence_is_refused(worker: Start, prefix: str) -> None:
    started(worker, BRICKD_SERVICE="api")
    with running():
        for arguments, code, message in (
            (("00000000",), 4, "no problem 00000000 (brickd status lists them)"),
            (("--off",), 2, "'off' is given without the id of a silenced problem"),
            (("00000000", "--for", "1d"), 2, "1d is not a duration of 1s to 8760h"),
        ):
            ended = brickd("silence", *arguments)
            assert (ended.returncode, ended.stdout) == (code, "")
            assert message in ended.stderr
    assert brickd("silence").returncode == 3
