"""`scripts/soak`: the accuracy of a worker's own counts, and the report of every mismatch."""

from __future__ import annotations

import json
import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from benchmarks.workplace import Workplace
from conftest import ROOT, Worker
from faults import Start
from soaking import growth, storm_balance
from soaking.account import KINDS, Account, Bounds
from soaking.counters import Counters
from soaking.daemon import Weight
from soaking.herd import Herd
from soaking.judgement import Found, judge
from soaking.plan import KERNEL, MEASURED_NS, plan
from soaking.samples import Sample
from soaking.storm_balance import Counted, Seen

from brickd.model.worker_survey import survey

pytestmark = pytest.mark.ci  # these tests check a script, not brickd

NOTHING = dict.fromkeys(KINDS, Bounds(0, 0))

# ---- the command line


@pytest.mark.parametrize(
    "wrong",
    ["--seconds nan", "--seconds inf", "--seconds 0", "--workers 0", "--workers 1025", "--daemon-kills -1",
     "--daemon-kills nan", "--daemon-kills 1e300", "--busy 1", "--busy -1 --storm", "--busy 1001 --storm"],
)  # fmt: skip
def test_an_impossible_run_is_a_usage_error_and_not_a_failure(wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
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
    assert account.read("spans") == (20, 25), "the killed worker may have done any number of the last five"
    assert account.read("defer") == (0, 0)
    assert not account.ended
    account.close()


def test_a_plan_depends_only_on_seed_and_number() -> None:
    assert [plan(1, n) for n in range(20)] == [plan(1, n) for n in range(20)]
    assert [plan(1, n) for n in range(20)] != [plan(2, n) for n in range(20)]


# ---- the judgement


@pytest.fixture
def found(worker: Start, prefix: str) -> Found:
    """Return brickd's numbers for a worker that recorded six spans. No daemon has read its deferred work."""
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
    """Return the failed checks, each with its number of unexplained records."""
    checks = judge("api", NOTHING | done, cut_lanes, found)
    assert all(check.name.startswith("api: ") for check in checks)
    return {check.name.removeprefix("api: "): check.unexplained for check in checks if not check.passed}


def test_recorded_work_and_shown_totals_agree(found: Found) -> None:
    assert failed(found, spans=Bounds(6, 6)) == {}
    assert failed(found, spans=Bounds(4, 9)) == {}


@pytest.mark.parametrize(("given", "off"), [(Bounds(7, 7), 1), (Bounds(8, 20), 2), (Bounds(3, 5), 1)])
def test_one_span_too_many_or_too_few_is_reported(found: Found, given: Bounds, off: int) -> None:
    assert failed(found, spans=given) == {"spans begun, and those of threads without a lane": off}


@pytest.mark.parametrize(
    ("account", "term", "check"),
    [
        ("spans", "unpublished", "spans begun, less summarized, rejected, open, abandoned"),
        ("spans", "open", "spans open after all workers have ended"),
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
def test_a_ledger_term_off_by_one_is_reported(found: Found, account: str, term: str, check: str) -> None:
    getattr(found.ledger, account)[term] += 1
    assert failed(found, spans=Bounds(6, 6))[check] == 1


def test_spans_of_bricks_missing_in_the_ledger_are_reported(found: Found) -> None:
    found.counts["work", False] += 1
    assert failed(found, spans=Bounds(6, 6)) == {"spans in the bricks' totals, less summarized": 1}
    found.counts["work", False] -= 1
    found.counts[KERNEL, True] += 1
    assert failed(found, spans=Bounds(6, 6)) == {"bounds in the bricks' totals": 1}
    found.counts[KERNEL, True] -= 1
    found.measured_ns += MEASURED_NS
    assert failed(found, spans=Bounds(6, 6)) == {"ns measured": MEASURED_NS}


def test_a_kill_explains_at_most_one_record_of_each_lane(found: Found) -> None:
    found.ledger.spans["unpublished"] += 2
    wanted = "spans begun, less summarized, rejected, open, abandoned"
    assert failed(found, cut_lanes=2, spans=Bounds(6, 6)) == {}
    assert failed(found, cut_lanes=1, spans=Bounds(6, 6)) == {wanted: 1}


# ---- during the run


def status(begun: int, read: int) -> dict[str, Any]:
    ledger = {
        "spans": dict.fromkeys(("summarized", "rejected", "abandoned", "no_lane"), 0) | {"begun": begun},
        "details": {"consumed": 0, "lost_with_daemon": 0, "dropped": {}},
        "events": {"consumed": read, "dropped": {}},
        "deferred": dict.fromkeys(("started", "measured", "bounded", "orphaned"), 0),
    }
    return {"workers": [{"service": "api", "ledger": ledger}], "bricks": []}


def test_a_counter_that_goes_back_is_reported() -> None:
    counters = Counters()
    assert counters.fallen(status(10, 5), 1) == []
    assert counters.fallen(status(9, 5), 1) == ["api: spans begun decreased from 10 to 9"]
    assert counters.fallen(status(9, 4), None) == [], "only a daemon shows what it has read"
    assert counters.fallen(status(9, 4), 2) == []
    assert counters.fallen(status(9, 3), 2) == ["api: events consumed decreased from 4 to 3"]
    assert counters.fallen({"workers": [], "bricks": []}, None) == ["api: spans begun decreased from 9 to 0"]


def grown(*rss: int) -> list[bool]:
    samples = [Sample(float(n), 1, Weight(size, 9, 0, 0), settled=False) for n, size in enumerate(rss)]
    return [check.passed for check in growth.judge(growth.ratio(samples, ends_at_s=100.0))]


def test_a_daemon_that_grows_is_reported() -> None:
    assert grown(*range(40, 100, 12), *[100] * 10) == [True], (
        "the first growth does not count, because the daemon fills up to its limits"
    )
    assert grown(*range(100, 250, 10)) == [False]
    assert grown(100, 900) == [], "two samples are too few"


# ---- the storm


def counted(low: int, high: int, service: str = "api") -> Counted:
    return Counted(service, 7, {"request": Bounds(low, high), "mlp": Bounds(1, 1)})


DONE = {"a": counted(4, 6), "b": counted(9, 9), "c": counted(2, 2), "d": counted(5, 8), "e": counted(3, 3, "batch")}
# Worker `a` is listed alone. Worker `b` was removed and is in no total. The other three were merged, so only their
# services are known.
SHOWN = Seen({"a": 7}, {"b": 10}, {"api": 9 + 2, "batch": 4}, {"api": 2, "batch": 1}, {"request": 20, "mlp": 5})
APART, SUMS = "spans of each worker", "spans of workers not shown separately, by service"
ADDED = "workers not shown separately, by service"
PER_BRICK, STRANGE = "spans of each brick", "spans of workers that counted none"


def wrong(seen: Seen, shown: Mapping[str, int] = MappingProxyType({})) -> dict[str, int]:
    """Return the failed checks, each with its number of unexplained records."""
    return {check.name: check.unexplained for check in storm_balance.judge(DONE, seen, shown) if not check.passed}


def test_a_storm_passes_if_all_spans_are_shown_or_removed_once() -> None:
    assert wrong(SHOWN) == {}
    for least in (5, 7):
        assert wrong(replace(SHOWN, workers={"a": least})) == {}
    assert wrong(replace(SHOWN, workers={"a": 3, "b": 4}, removed={"a": 2, "b": 6})) == {}


@pytest.mark.parametrize(
    ("seen", "failed"),
    [
        (replace(SHOWN, workers={"a": 4}), {APART: 1}),
        (replace(SHOWN, workers={"a": 8}), {APART: 1}),
        (replace(SHOWN, removed={"b": 9}), {APART: 1}),
        (replace(SHOWN, removed={"b": 11}), {APART: 1}),
        (replace(SHOWN, workers={"a": 7, "b": 1}), {APART: 1}),
        (replace(SHOWN, removed={}), {SUMS: 8, ADDED: 1}),
        (replace(SHOWN, sums={"api": 8, "batch": 4}), {SUMS: 1}),
        (replace(SHOWN, sums={"api": 13, "batch": 4}), {SUMS: 1}),
        (replace(SHOWN, sums={"api": 11}), {SUMS: 4}),
        (replace(SHOWN, sums={"api": 11, "batch": 4, "other": 2}), {SUMS: 2}),
        (replace(SHOWN, added={"api": 1, "batch": 1}), {ADDED: 1}),
        (replace(SHOWN, added={"api": 3, "batch": 1}), {ADDED: 1}),
        (replace(SHOWN, bricks={"request": 29}), {PER_BRICK: 1}),
        (replace(SHOWN, bricks={"mlp": 6}), {PER_BRICK: 1}),
        (replace(SHOWN, bricks={"unknown": 3}), {PER_BRICK: 3}),
        (replace(SHOWN, workers={"a": 7, "z": 2}), {STRANGE: 2}),
        (replace(SHOWN, removed={"b": 10, "z": 2}), {STRANGE: 2}),
    ],
)  # fmt: skip
def test_a_storm_reports_each_span_lost_or_counted_twice(seen: Seen, failed: dict[str, int]) -> None:
    assert wrong(seen) == failed


def test_the_shown_total_of_a_worker_may_not_decrease() -> None:
    assert wrong(SHOWN, {"a": 7, "d": 6}) == {}
    assert wrong(replace(SHOWN, workers={"a": 6}), {"a": 7}) == {APART: 1}
    assert wrong(replace(SHOWN, sums={"api": 9, "batch": 4}), {"d": 9}) == {SUMS: 3}
    assert wrong(SHOWN, {"a": 8}) == {APART: 1}, "the number is higher than the number of spans that can have begun"


def test_a_storm_names_the_worker_with_the_largest_error() -> None:
    (check,) = (
        each for each in storm_balance.judge(DONE, replace(SHOWN, workers={"a": 2, "c": 1}), {}) if each.name == APART
    )
    assert check.seen == "2 of 3 off, furthest api, process 7, uuid a: 2, counted 5 to 7"


def test_documents_with_and_without_removed_workers_are_parsed() -> None:
    def worker(uuid: str, together: int, begun: int, no_lane: int = 0) -> dict[str, Any]:
        spans = {"begun": begun, "no_lane": no_lane}
        return {"uuid": uuid, "service": "api", "together": together, "ledger": {"spans": spans}}

    bricks = {"bricks": [{"name": "mlp", "count": 2}, {"name": "mlp", "count": 3}]}
    workers = {"workers": [worker("a", 1, 5, 2), worker("x", 3, 9), worker("y", 2, 1)]}
    assert Seen.of(workers, bricks) == Seen({"a": 7}, {}, {"api": 10}, {"api": 5}, {"mlp": 5})
    several = {"uuid": None, "service": "api", "spans": 7, "together": 4}
    seen = Seen.of(workers | {"removed": [{"uuid": "b", "spans": 10}, several]}, bricks)
    assert (seen.removed, seen.sums, seen.added) == ({"b": 10}, {"api": 17}, {"api": 9})


def test_a_shown_total_must_be_between_two_readings_of_the_account() -> None:
    assert counted(7, 9).since(counted(4, 6)).bricks["request"] == (4, 9)
    assert counted(7, 9).since(None).bricks["request"] == (0, 9)


def test_a_worker_of_the_storm_counts_each_span_before_and_after(prefix: str, tmp_path: Path) -> None:
    place = Workplace(tmp_path, os.environ | {"BRICKD_SHM_PREFIX": prefix, "PYTHONPATH": str(ROOT / "scripts")})
    herd = Herd(place)
    try:
        for seed in range(3):
            herd.order("api", seed)
        assert herd.wait(60, lambda: herd.came == 3 and all(each.spans.low for each in herd.counted().values()))
        herd.signal([*herd.living], signal.SIGKILL)
        assert herd.wait(60, lambda: not herd.living)
        found = {each.reading.uuid: each.ledger.spans["begun"] for each in survey(prefix).workers}
    finally:
        herd.leave()
    of = herd.counted()
    assert {each.service for each in of.values()} == {"api"}
    assert found.keys() == of.keys()
    assert all(check.passed for check in storm_balance.judge(of, Seen(found), {}))


# ---- the whole soak


@pytest.mark.nightly
def test_a_short_soak_passes_and_leaves_no_file() -> None:
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


@pytest.mark.nightly
@pytest.mark.parametrize("busy", [0, 4])
def test_a_short_storm_passes_and_leaves_no_file(busy: int) -> None:
    command = (sys.executable, ROOT / "scripts" / "soak", "--storm", "--seconds", "15", "--seed", "1", "--json")
    done = subprocess.run([*command, "--busy", str(busy)], capture_output=True, text=True, check=False, timeout=400)
    report = json.loads(done.stdout)
    # This test does not check how many workers die at once within 15 seconds, because it depends on the machine.
    # `scripts/soak --storm` requires a minimum.
    wrong = [check for check in report["checks"] if not check["passed"] and check["name"] != "dead at once"]
    assert (wrong, done.returncode in (0, 1)) == ([], True), done.stderr
    assert min(report["worker_kills"], report["looks"]) > 0
    assert (
        report["spans_counted_low"] <= report["spans_shown"] + report["spans_removed"] <= report["spans_counted_high"]
    )
