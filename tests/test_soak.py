"""The soak: what a worker's account is worth, and that whatever does not add up is told."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, Worker
from faults import Start
from soaking import growth
from soaking.account import KINDS, Account, Bounds
from soaking.counters import Counters
from soaking.daemon import Weight
from soaking.judgement import Found, judge
from soaking.plan import KERNEL, MEASURED_NS, plan
from soaking.samples import Sample

from brickd.workers import survey

NOTHING = dict.fromkeys(KINDS, Bounds(0, 0))

# ---- what is asked


@pytest.mark.parametrize(
    "wrong",
    ["--seconds nan", "--seconds inf", "--seconds 0", "--workers 0", "--workers 1025", "--daemon-kills -1",
     "--daemon-kills nan", "--daemon-kills 1e300"],
)  # fmt: skip
def test_a_run_that_cannot_be_is_a_usage_error_and_no_failure(wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    asked = runpy.run_path(str(ROOT / "scripts" / "soak"))["asked"]
    with pytest.raises(SystemExit) as ended:
        asked(wrong.split())
    assert ended.value.code == 2
    assert f"error: {wrong.split(maxsplit=1)[0]} " in capsys.readouterr().err


# ---- the account


def test_an_account_outlives_its_worker(worker: Start, tmp_path: Path) -> None:
    killed = worker(
        f"""
        sys.path.insert(0, {str(ROOT / "scripts")!r})
        from pathlib import Path
        from soaking.account import Account
        account = Account(Path({str(tmp_path / "7")!r}))
        with account.about_to(0, "spans", 20):
            pass
        with account.about_to(3, "spans", 5):
            pause()
        """
    )
    killed.paused()
    killed.kill()
    account = Account(tmp_path / "7")
    assert account.read("spans") == (20, 25), "it may have done any of the last five"
    assert account.read("defer") == (0, 0)
    assert not account.ended
    account.close()


def test_a_plan_is_drawn_from_seed_and_number_alone() -> None:
    assert [plan(1, n) for n in range(20)] == [plan(1, n) for n in range(20)]
    assert [plan(1, n) for n in range(20)] != [plan(2, n) for n in range(20)]


# ---- the judgement


@pytest.fixture
def found(worker: Start, prefix: str) -> Found:
    """Of a worker that recorded six spans, and deferred work that no daemon reads."""
    works: Worker = worker(
        """
        b = brick.brick("work")
        for _ in range(6):
            with b: pass
        pause()
        """,
        BRICKD_SERVICE="api",
    )
    works.paused()
    found = Found.of(survey(prefix).workers)
    works.go()
    assert works.end() == 0
    return found


def failed(found: Found, cut_lanes: int = 0, **done: Bounds) -> dict[str, int]:
    """The checks that fail, and how much nobody can explain."""
    checks = judge("api", NOTHING | done, cut_lanes, found)
    assert all(check.name.startswith("api: ") for check in checks)
    return {check.name.removeprefix("api: "): check.unexplained for check in checks if not check.passed}


def test_what_workers_did_and_what_is_known_of_them_agree(found: Found) -> None:
    assert failed(found, spans=Bounds(6, 6)) == {}
    assert failed(found, spans=Bounds(4, 9)) == {}


@pytest.mark.parametrize(("said", "off"), [(Bounds(7, 7), 1), (Bounds(8, 20), 2), (Bounds(3, 5), 1)])
def test_a_span_too_many_or_too_few_is_told(found: Found, said: Bounds, off: int) -> None:
    assert failed(found, spans=said) == {"spans begun, and those of threads without a lane": off}


@pytest.mark.parametrize(
    ("account", "term", "check"),
    [
        ("spans", "unpublished", "spans begun, less summarized, rejected, open, abandoned"),
        ("spans", "open", "spans open when everybody is gone"),
        ("spans", "rejected", "spans rejected, unmatched, or from a signal's handler"),
        ("spans", "nested", "spans rejected, unmatched, or from a signal's handler"),
        ("details", "consumed", "span details wanted, less consumed, dropped, lost with a daemon"),
        ("details", "lost_with_daemon", "span details wanted, less consumed, dropped, lost with a daemon"),
        ("details_dropped", "full", "span details wanted, less consumed, dropped, lost with a daemon"),
        ("details", "in_ring", "span details and events left in rings"),
        ("events", "consumed", "events wanted, less consumed and dropped"),
        ("events", "in_ring", "span details and events left in rings"),
        ("deferred", "started", "deferred starts, read or dropped"),
        ("deferred", "refused", "deferred starts, read or dropped"),
        ("deferred", "unmatched", "measurements, read or dropped"),
        ("deferred", "orphaned", "deferred starts, less measured, bounded, orphaned"),
        ("deferred", "bounded", "bounds in the bricks' totals"),
        ("deferred", "measured", "measurements in the bricks' totals"),
    ],
)
def test_a_term_of_the_ledger_that_is_off_by_one_is_told(found: Found, account: str, term: str, check: str) -> None:
    getattr(found.ledger, account)[term] += 1
    assert failed(found, spans=Bounds(6, 6))[check] == 1


def test_what_the_bricks_have_and_the_ledger_has_not_is_told(found: Found) -> None:
    found.counts["work", False] += 1
    assert failed(found, spans=Bounds(6, 6)) == {"spans in the bricks' totals, less summarized": 1}
    found.counts["work", False] -= 1
    found.counts[KERNEL, True] += 1
    assert failed(found, spans=Bounds(6, 6)) == {"bounds in the bricks' totals": 1}
    found.counts[KERNEL, True] -= 1
    found.measured_ns += MEASURED_NS
    assert failed(found, spans=Bounds(6, 6)) == {"ns measured": MEASURED_NS}


def test_a_kill_explains_one_record_of_each_lane_and_no_more(found: Found) -> None:
    found.ledger.spans["unpublished"] += 2
    wanted = "spans begun, less summarized, rejected, open, abandoned"
    assert failed(found, cut_lanes=2, spans=Bounds(6, 6)) == {}
    assert failed(found, cut_lanes=1, spans=Bounds(6, 6)) == {wanted: 1}


# ---- on the way


def status(begun: int, read: int) -> dict[str, Any]:
    ledger = {
        "spans": dict.fromkeys(("summarized", "rejected", "abandoned", "no_lane"), 0) | {"begun": begun},
        "details": {"consumed": 0, "lost_with_daemon": 0, "dropped": {}},
        "events": {"consumed": read, "dropped": {}},
        "deferred": dict.fromkeys(("started", "measured", "bounded", "orphaned"), 0),
    }
    return {"workers": [{"service": "api", "ledger": ledger}], "bricks": []}


def test_a_counter_that_goes_back_is_told() -> None:
    counters = Counters()
    assert counters.fallen(status(10, 5), 1) == []
    assert counters.fallen(status(9, 5), 1) == ["api: spans begun went back from 10 to 9"]
    assert counters.fallen(status(9, 4), None) == [], "what a daemon had read is its own"
    assert counters.fallen(status(9, 4), 2) == []
    assert counters.fallen(status(9, 3), 2) == ["api: events consumed went back from 4 to 3"]
    assert counters.fallen({"workers": [], "bricks": []}, None) == ["api: spans begun went back from 9 to 0"]


def grown(*rss: int) -> list[bool]:
    samples = [Sample(float(n), 1, Weight(size, 9, 0, 0), settled=False) for n, size in enumerate(rss)]
    return [check.passed for check in growth.judge(growth.ratio(samples, ends_at_s=100.0))]


def test_a_daemon_that_grows_is_told() -> None:
    assert grown(*range(40, 100, 12), *[100] * 10) == [True], "at first it fills up to what it keeps"
    assert grown(*range(100, 250, 10)) == [False]
    assert grown(100, 900) == [], "two looks say nothing"


# ---- all of it


@pytest.mark.slow
def test_a_short_soak_adds_up_and_leaves_nothing() -> None:
    command = (sys.executable, ROOT / "scripts" / "soak", "--seconds", "10", "--workers", "8", "--seed", "1", "--json")
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    report = json.loads(done.stdout)
    wrong = [check for check in report["checks"] if not check["passed"]]
    assert (done.returncode, wrong, report["passed"]) == (0, [], True), done.stderr
    assert (report["schema_version"], report["seed"], report["unexplained"]) == (1, 1, 0)
    assert report["daemon_kills"] == 1
    assert min(report[figure] for figure in ("workers_started", "worker_kills", "worker_ends", "worker_suspends")) > 0
    assert report["spans_expected_low"] <= report["spans_found"] <= report["spans_expected_high"]
    assert set(report["left"].values()) == {0}
