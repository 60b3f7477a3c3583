"""How benchmarks judge their results: goals, skipped rows, plausible results, the picture."""

from __future__ import annotations

import json
import re
import struct
from collections import Counter
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from benchmarks import cases, cli, contended, curves, hostile, load, peers, plot, stragglers
from benchmarks.comparisons import COMPARISONS, Comparison
from benchmarks.fleet import fleet
from benchmarks.goals import Goal
from benchmarks.load import Load
from benchmarks.lockstep import Group, lockstep
from benchmarks.method import Case, Times, measure
from benchmarks.paced import paced
from benchmarks.peers import lttng, needs, seed
from benchmarks.report import Report, Table
from benchmarks.running import running
from benchmarks.spans import attempted, better, fastest, rated
from benchmarks.workplace import workplace
from hypothesis import given
from hypothesis import strategies as st

from brickd.shm.segment import open_segment
from brickd.shm.segment_files import find

AT_LEAST_4 = Comparison("theirs", "ours", Goal(4, at_least=True), needs_tsc=True)


def row(case: str = "theirs", by: str = "them", ns: float = 200.0, **other: Any) -> dict[str, Any]:
    figures = {"ns_min": ns, "ns_median": ns * 1.5, "reference_ns_median": 50.0}
    ratios = {"ratio_of_min": ns / 40, "ratio_median": ns / 50}
    return {"case": case, "by": by, **figures, **ratios, "note": "", "skipped": None} | other


def skipped(why: str = "rustc not found") -> dict[str, Any]:
    return dict.fromkeys(row()) | {"case": "theirs", "by": "them", "note": "", "skipped": why}


def test_either_ratio_may_meet_a_goal() -> None:
    assert rated(AT_LEAST_4, row(ratio_of_min=3.9, ratio_median=4.1), tsc=True)["passed"] is True
    assert rated(AT_LEAST_4, row(ratio_of_min=3.9, ratio_median=3.8), tsc=True)["passed"] is False


def test_a_goal_for_the_tsc_applies_only_there() -> None:
    assert rated(AT_LEAST_4, row(ns=1), tsc=False)["passed"] is None


def test_a_skipped_row_neither_meets_nor_misses_its_goal() -> None:
    judged = rated(AT_LEAST_4, skipped(), tsc=True)
    assert (judged["passed"], judged["goal"]) == (None, ">= 4")


def test_the_attempt_nearest_to_its_goal_is_shown() -> None:
    far, near, met = (rated(AT_LEAST_4, row(ns=ns), tsc=True) for ns in (50, 100, 400))
    assert better(near, far)
    assert better(met, near)
    assert not better(far, near)
    assert not better(near, met)


@pytest.mark.parametrize(
    ("found", "made", "shown"), [([50, 400], 2, 400), ([100, 50, 80, 400], 3, 100), ([400], 1, 400)]
)
def test_attempts_stop_at_the_goal_and_after_three(found: list[float], made: int, shown: float) -> None:
    rows, attempts = attempted((AT_LEAST_4,), lambda turn: [row(ns=found[turn], reference="ours")])
    assert (len(attempts), [each["ns_min"] for each in rows]) == (made, [shown])


def test_a_measured_row_replaces_a_skipped_one_and_never_the_reverse() -> None:
    measured, absent = (rated(AT_LEAST_4, each, tsc=True) for each in (row(ns=50), skipped()))
    assert better(measured, absent)
    assert not better(absent, measured)


def test_the_picture_shows_the_attempt_of_the_fastest_machine() -> None:
    attempts = [[row(reference_ns_median=ns)] for ns in (40.0, 25.0, 41.0)]
    assert fastest(Table("times", "", attempts[0], attempts=attempts)) is attempts[1]


def test_every_case_of_a_peer_is_compared_once() -> None:
    offered = Counter(case for peer in peers.PEERS for case in peer.HOW)
    ours = {getattr(cases, name) for name in vars(cases) if name.isupper() and name not in {"CLOCKS", "TSC"}}
    compared = Counter(each.case for each in COMPARISONS if each.case not in ours)
    assert compared == offered
    assert {each.reference for each in COMPARISONS} <= ours


def test_the_goals_against_peers_match_the_design() -> None:
    goals = {each.by: each.goal.limit for each in COMPARISONS if each.goal is not None and each.by != "brickd"}
    assert goals == {"prometheus_client": 50, "LTTng-UST": 4, "the predecessor's design": 1.4}


def test_a_peer_without_its_tool_is_skipped_with_the_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found, absent = peers.present(tmp_path, (seed, lttng))
    assert found == []
    assert absent[seed.PAIR] == "rustc not found"
    assert absent[lttng.PAIR] == absent[lttng.OF_TASK]
    assert absent[lttng.PAIR] == "lttng not found (Debian: liblttng-ust-dev lttng-tools)"


def test_a_missing_package_is_distinguished_from_a_broken_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "broken_peer.py").write_text("import no_such_dependency")
    with pytest.raises(needs.AbsentError, match=r"^no_such_peer not found \(the extra\)$"):
        needs.package("no_such_peer.sub", "the extra")
    with pytest.raises(needs.AbsentError, match=r"^broken_peer does not load: No module named 'no_such_dependency'$"):
        needs.package("broken_peer", "the extra")


def test_the_output_of_a_failing_compiler_is_quoted(tmp_path: Path) -> None:
    compiler = tmp_path / "cc"
    compiler.write_text("#!/bin/sh\necho note: here >&2\necho 'x.c:1: error: no such header' >&2\nexit 1\n")
    compiler.chmod(0o755)
    with pytest.raises(needs.AbsentError, match=r"^cc failed: x.c:1: error: no such header \(Debian: gcc\)$"):
        needs.library(tmp_path / "x.so", (compiler,), "Debian: gcc")


def packet(marks: int, left_over: int) -> bytes:
    """Return a CTF packet with `marks` of the benchmark's events, followed by `left_over` events of an older packet."""
    mark = struct.pack("<Q", lttng._MARK)
    content = lttng._PACKET.size + 8 * marks
    whole = content + 8 * left_over
    head = lttng._PACKET.pack(lttng._MAGIC, bytes(16), 0, 0, 1, 2, content * 8, whole * 8)
    return head + mark * (marks + left_over)


def test_trace_events_are_counted_only_inside_their_packets(tmp_path: Path) -> None:
    stream = tmp_path / "bare_0"
    stream.write_bytes(packet(marks=3, left_over=2) + packet(marks=4, left_over=0))
    assert lttng.marks(stream) == 7
    stream.write_bytes(b"")
    assert lttng.marks(stream) == 0


@pytest.mark.parametrize("rest", [bytes(64), b"short", packet(5, 0)[1:]])
def test_unreadable_parts_of_a_trace_are_not_counted(tmp_path: Path, rest: bytes) -> None:
    stream = tmp_path / "bare_0"
    stream.write_bytes(packet(marks=2, left_over=0) + rest)
    assert lttng.marks(stream) == 2


def test_a_compiled_loop_includes_the_cost_of_the_interpreters_loop() -> None:
    rounds = {"empty loop": [10.0, 12.0], "with b:": [60.0, 72.0], "in C": [20.0, 24.0]}
    times = Times(rounds, {"in C"}, {})
    assert (times.least("with b:"), times.costs("with b:")) == (50.0, [50.0, 60.0])
    assert (times.least("in C"), times.costs("in C")) == (20.0, [20.0, 24.0])
    assert times.ratio_of_min("in C", "with b:") == 0.4


@pytest.mark.ci
def test_a_case_that_recorded_too_little_is_rejected() -> None:
    honest: list[int] = []
    cheating: list[int] = []
    times = measure(
        [
            Case("honest", native=honest.append, batch_max=50, recorded=lambda: sum(honest)),
            Case("cheating", native=cheating.append, batch_max=50, recorded=lambda: sum(cheating) - 1),
        ],
        rounds=2,
        seed=0,
    )
    done = sum(cheating)
    assert times.refused == {"cheating": f"{done - 1:,} of {done:,} were recorded, expected all"}


def test_a_report_lists_skipped_rows_as_not_tried() -> None:
    table = Table("times", "Times", [row("ours", goal=None, passed=None), skipped() | {"goal": ">= 4", "passed": None}])
    report = Report("agent", {}, [table])
    assert report.passed
    assert "  theirs  skipped: rustc not found\n" in report.text()
    assert report.text().endswith("All goals met; not tried: 1.")
    document = json.loads(report.json())
    assert document["times"]["rows"][1]["skipped"] == "rustc not found"
    assert document["times"]["rows"][1]["ns_min"] is None


FACTS = {"cpu_model": "a cpu", "cpus": 2, "agent_clock": "tsc", "python": "3.11", "kernel": "6.1"}


def texts(picture: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(picture).iter() if element.tag.endswith("}text")]


@given(st.text(), st.text(), st.text())
def test_no_name_can_escape_from_the_picture(case: str, by: str, cpu: str) -> None:
    picture = plot.svg("Times", [row(case, by)], FACTS | {"cpu_model": cpu})
    tags = {element.tag.rpartition("}")[2] for element in ElementTree.fromstring(picture).iter()}
    assert tags <= {"svg", "title", "style", "rect", "path", "text"}


def test_names_in_the_picture_are_shown_unchanged_or_escaped() -> None:
    shown = texts(plot.svg("Times", [row('<b> & "c"', "\x1b[31m")], FACTS))
    assert '<b> & "c"' in shown
    assert r"\x1b[31m" in shown


def test_the_picture_has_a_bar_per_row_cheapest_first_and_names_missing_ones() -> None:
    rows = [row("slow", ns=9_000.0), row("fast", "brickd", ns=20.0), skipped() | {"by": "torch"}]
    shown = texts(plot.svg("Times", rows, FACTS))
    assert shown.index("fast") < shown.index("slow")
    assert {"20 / 30", "9,000 / 13,500", "10", "100,000", "Not in this run: torch."} <= set(shown)
    assert any("a cpu" in text and "tsc" in text and "3.11" in text for text in shown)


def test_an_empty_picture_is_valid() -> None:
    assert "Not in this run: them." in texts(plot.svg("Times", [skipped()], FACTS))


def test_a_completion_must_name_a_worker() -> None:
    assert cli.names_a_worker("plain,api/0\nplain,api/1\n") == ""
    assert "no worker's name in the answer" in cli.names_a_worker("plain,status\n")
    assert "no worker's name in the answer" in cli.names_a_worker("")


def test_a_command_with_a_wrong_answer_misses_its_goal_at_any_speed() -> None:
    command = cli.Command("brickd status", (), Goal(150))
    assert cli._row(command, [1.0, 2.0], "")["passed"] is True
    assert cli._row(command, [1.0, 2.0], "exit status 2, expected 0")["passed"] is False
    assert cli._row(command, [151.0, 200.0], "")["passed"] is False


@pytest.mark.ci
def test_a_fleet_records_and_leaves_no_file() -> None:
    with workplace() as place:
        prefix = place.environment["BRICKD_SHM_PREFIX"]
        with fleet(place, workers=3, bricks=70):
            assert len(find(prefix)) == 3
        assert find(prefix) == []


@pytest.mark.ci
def test_sparse_segments_claim_the_maximum_and_take_little_memory() -> None:
    with workplace() as place, hostile.started(place, "benchmarks.sparse", "2") as files:
        assert files.stdout is not None
        taken = int(files.stdout.readline())
        names = find(place.environment["BRICKD_SHM_PREFIX"])
        assert len(names) == 2
        for name in names:
            with open_segment(name) as segment:
                found = segment.read()
                assert (found.alive, len(found.lanes), found.process["paths"]) == (True, 1024, 65472)
        assert taken < 2 * 420 * 1024


MILLION = Load("span rings on", 16, 1_000_000, ring=True, goal=Goal(3))


def ledger(made: int, consumed: int, **terms: int) -> dict[str, Any]:
    others = {"in_ring": 0, "lost_with_daemon": 0, "removed": 0, **terms}
    lost = made - consumed - sum(terms.values())
    return {
        "spans": {"summarized": made},
        "details": {"consumed": consumed, "dropped": {"full": lost} if lost else {}, **others},
        "events": {"consumed": consumed, "dropped": {"defer": lost} if lost else {}, **others},
    }


def test_a_daemon_that_lost_a_record_misses_its_goal_at_any_cost() -> None:
    assert load.problem(ledger(1_000, 1_000), MILLION) == ""
    lost = "1 of 1,000 records were lost (dropped, full: 1), expected none"
    assert load.problem(ledger(1_000, 999), MILLION) == lost
    assert load.row(MILLION, [2.0, 5.0, 6.0], 1e6, "")["passed"] is True
    assert load.row(MILLION, [3.1, 5.0, 6.0], 1e6, "")["passed"] is False
    assert load.row(MILLION, [2.0, 5.0, 6.0], 1e6, lost)["passed"] is False


def test_the_reasons_of_lost_records_are_shown() -> None:
    found = load.problem(ledger(9_000, 5_000, lost_with_daemon=1_500, removed=500), MILLION)
    reasons = "dropped, full: 2,000; lost with daemon: 1,500; removed: 500"
    assert found == f"4,000 of 9,000 records were lost ({reasons}), expected none"


def test_dropped_events_are_lost_and_unwanted_details_are_not() -> None:
    assert load.problem(ledger(1_000, 999), Load("deferred", 16, 20_000, "deferred"))
    assert load.problem(ledger(1_000, 0), Load("span rings off", 16, 1_000_000)) == ""


def test_a_machine_that_records_too_little_gives_no_judgement() -> None:
    judged = load.row(MILLION, [0.1], 900_000.0, "")
    assert judged["passed"] is None
    assert judged["skipped"] == "this machine let the workers make 900,000 records a second, expected 1,000,000"


def test_the_growth_is_drawn_over_two_decades_with_rings_on_and_off() -> None:
    for ring in (True, False):
        rates = [each.rate for each in curves.LOADS if each.ring == ring and each.workers == 16]
        workers = [each.workers for each in curves.LOADS if each.ring == ring and each.rate == 100_000]
        assert max(rates) >= 100 * min(rates)
        assert max(workers) >= 100 * min(workers)
    rows = [load.row(each, [each.rate / 1e6], each.rate, "") for each in curves.LOADS]
    picture = curves.svg(rows, FACTS)
    assert {"0.01", "1", "10,000", "1,000,000", "100", "span rings on", "span rings off"} <= set(texts(picture))
    assert picture.count("<circle") == 16
    assert picture.count('class="curve') == 4
    for line in re.findall(r'class="curve[^>]* d="M([^"]*)"', picture):
        across = [float(point.split()[0]) for point in line.split(" L")]
        assert across == sorted(across)


def test_a_growth_that_was_not_measured_is_not_drawn() -> None:
    rows = [load.row(each, [1.0], 0.0, "") for each in curves.LOADS]
    assert "<circle" not in curves.svg(rows, FACTS)
    rows[0] |= {"skipped": None}
    assert curves.svg(rows, FACTS).count("<circle") == 1


def watched(runs: int, named: int, wrong: int, *, slow: bool = True) -> dict[str, Any]:
    """Return the row of `runs` services. In the first `named` of them, the slow worker was named; in the last `wrong`
    of them, another worker was named.
    """
    made = [stragglers.Run(Group(f"s{n}", n, (3, "mlp", 3.0) if slow else None)) for n in range(runs)]
    for run in made[:named]:
        run.note(f"{run.group.service}/3", "mlp", 41.0)
    for run in made[runs - wrong :]:
        run.note(f"{run.group.service}/4", "mlp", 41.0)
    return stragglers.row(made, 3.0)


def test_of_a_hundred_stragglers_five_may_be_missed_and_one_misnamed() -> None:
    assert watched(100, 95, 1)["passed"] is True
    assert watched(100, 94, 0)["passed"] is False
    assert watched(100, 100, 2)["passed"] is False
    assert watched(100, 0, 1, slow=False)["passed"] is True
    assert watched(100, 0, 2, slow=False)["passed"] is False
    assert watched(6, 5, 0)["passed"] is False


def test_a_worker_named_late_or_in_another_brick_is_not_found() -> None:
    run = stragglers.Run(Group("s", 1, (3, "mlp", 3.0)))
    run.note("s/3", "moe_gemm", 20.0)
    run.note("s/3", "mlp", 61.0)
    assert (run.good, run.named_s, run.wrong) == (False, 61.0, {"s/3 in moe_gemm"})
    assert stragglers.row([run], 3.0)["note"] == "s: s/3 in moe_gemm named; s: mlp of 3 named after 61 s"


def test_services_with_and_without_stragglers_come_in_a_seeded_order() -> None:
    planned = stragglers.plan(50, 3.0, seed=1)
    kinds = [run.group.slow is not None for run in planned]
    assert (len(kinds), sum(kinds)) == (100, 50)
    assert True in kinds[:50]
    assert False in kinds[:50]
    assert [run.group for run in stragglers.plan(50, 3.0, seed=1)] == [run.group for run in planned]
    assert sum(map(len, stragglers.batches(planned))) == 100


def test_next_to_busy_processes_each_kind_has_its_own_goal() -> None:
    def passed(kind: contended.Kind, load: int, named: int, wrong: int) -> bool:
        runs = [contended.Run(f"s{number}", kind, 1, 0) for number in range(100)]
        for run in runs[:named]:
            run.note(f"{run.service}/1", "" if kind == "pinned" else "gemm", 41.0)
        for run in runs[100 - wrong :]:
            run.note(f"{run.service}/2", "gemm", 41.0)
        found: bool = contended.row(runs, kind, load, [7.0])["passed"]
        return found

    assert [passed("2 x slow", 40, named, 1) for named in (94, 95)] == [False, True]
    assert [passed("20 % slow", 5, named, 1) for named in (89, 90)] == [False, True]
    assert passed("20 % slow", 40, 0, 1) is True  # this row has no goal
    assert [passed("nobody slow", 25, 0, wrong) for wrong in (1, 2)] == [True, False]


def test_a_waiting_worker_is_a_true_finding_only_if_it_is_pinned() -> None:
    for kind, brick, right in (("pinned", "", True), ("pinned", "gemm", False), ("2 x slow", "", False)):
        run = contended.Run("s", kind, 1, 0)  # type: ignore[arg-type]
        run.note("s/1", brick, 5.0)
        assert (run.named, bool(run.wrong)) == (right, not right)
    kinds = [run.kind for run in contended.plan(5, 3)]
    assert (len(kinds), kinds[:4]) == (12, kinds[4:8])
    assert contended.plan(5, 3) == contended.plan(5, 3)


@pytest.mark.slow
def test_a_group_in_lockstep_takes_each_step_together_and_leaves_no_file() -> None:
    with workplace() as place:
        prefix = place.environment["BRICKD_SHM_PREFIX"]
        with running(place) as daemon:
            with lockstep(place, Group("s", 1, (3, "mlp", 3.0))) as begin:
                begin()
                daemon.until(lambda: daemon.status()["ledger"]["spans"]["summarized"] > 1_000, "nobody works")
            steps = {worker["ledger"]["spans"]["summarized"] for worker in daemon.settled()["workers"]}
            assert len(steps) == 1
        assert find(prefix) == []


@pytest.mark.slow
def test_the_cost_of_a_daemon_is_measured_with_every_record_accounted_for() -> None:
    with workplace() as place:
        prefix = place.environment["BRICKD_SHM_PREFIX"]
        with running(place) as daemon:
            with paced(place, 3, 3_000, "spans") as begin:
                daemon.drains(3, spans=True)
                begin()
                assert all(share > 0 for share in daemon.shares(2, 0.2))
            found = daemon.settled()["ledger"]
            assert found["spans"]["summarized"] > 0
            assert found["details"] == {
                "consumed": found["spans"]["summarized"],
                "dropped": {},
                "in_ring": 0,
                "lost_with_daemon": 0,
                "removed": 0,
            }
            assert daemon.checkpoint_bytes() > 0
            assert daemon.resident_bytes() > 1 << 20
        assert find(prefix) == []
        assert not place.runtime.exists()
