"""`brickd status`, `inspect`, `prune` and `demo`, each in its own process."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import verbs
from conftest import SHM, readings
from faults import Start
from verbs import LOSING, brickd, document, started

from brickd.base.units import SECOND, duration
from brickd.model.worker_survey import survey
from brickd.screens.brick_columns import over
from brickd.views.problems import Seen, problems


def status(*names: str) -> dict[str, Any]:
    return verbs.document("status", *names)


@pytest.mark.parametrize(
    ("over_ns", "shown"),
    [
        (None, ""),
        (60 * SECOND, ", last 60 s"),
        (SECOND, ", last 1 s"),
        (SECOND - 1_000_000, ", last 999 ms"),
        (SECOND // 5, ", last 200 ms"),
    ],
)
def test_a_short_period_is_shown_with_its_unit(over_ns: int | None, shown: str) -> None:
    assert over({"over_ns": over_ns}) == shown


@pytest.mark.ci
def test_status_adds_up_all_workers_without_a_daemon(worker: Start) -> None:
    for _ in range(3):
        started(worker, BRICKD_SERVICE="api")
    document = status()
    assert document["schema_version"] == 1
    assert (document["source"], document["daemon"]) == ("shared memory", None)
    assert [each["name"] for each in document["workers"]] == ["api/0", "api/1", "api/2"]
    assert {each["state"] for each in document["workers"]} == {"live"}
    assert {brick["name"]: brick["count"] for brick in document["bricks"]} == {"norm": 300, "gemm": 300}
    norm = next(brick for brick in document["bricks"] if brick["name"] == "norm")
    assert (norm["elements"], norm["bytes"], norm["category"], norm["bounded"]) == (600, 2400, "norm", False)
    assert norm["min_ns"] <= norm["p50_ns"] <= norm["p90_ns"] <= norm["p99_ns"] <= norm["p999_ns"] <= norm["max_ns"]
    assert norm["worst_worker"] in {"api/0", "api/1", "api/2"}
    assert norm["spread"] >= 1
    assert sum(category["percent"] for category in document["categories"]) == pytest.approx(100, abs=0.1)
    assert document["ledger"]["spans"]["begun"] == document["ledger"]["spans"]["summarized"] == 600
    assert document["problems"] == []


def test_status_has_every_key_of_its_schema(worker: Start) -> None:
    started(worker)
    document = status()
    assert list(document) == [
        "schema_version", "source", "at", "daemon", "ledger", "removed", "workers", "over", "over_ns", "from", "to",
        "bricks", "categories", "against",
        "stragglers", "waiting", "judged_age_ns", "alarms", "diverged", "weights", "numerics", "evidence", "problems",
        "silenced",
    ]  # fmt: skip
    assert list(document["workers"][0]) == [
        "name", "service", "index", "coordinates", "uuid", "segment", "pid", "state", "together", "set",
        "configured", "drained", "started", "age_ns", "clock", "ledger", "lost", "threads", "lanes", "paths", "names",
        "memory_bytes", "cpu_percent", "rss_bytes", "open", "pending", "problem",
    ]  # fmt: skip
    assert list(document["bricks"][0]) == [
        "name", "category", "count", "total_ns", "self_ns", "mean_ns", "min_ns", "max_ns", "p50_ns", "p90_ns",
        "p95_ns", "p99_ns", "p999_ns", "cv", "elements", "bytes", "flops", "count_per_second", "elements_per_second",
        "elements_per_second_in_brick", "flops_per_second_in_brick", "flops_per_byte", "bounded",
        "latency_to_sync_mean_ns", "latency_to_sync_max_ns", "worst_worker", "spread",
    ]  # fmt: skip
    stream = ["consumed", "dropped", "in_ring", "lost_with_daemon", "removed"]
    assert {key: list(value) for key, value in document["ledger"].items()} == {
        "spans": [
            "begun", "summarized", "rejected", "open", "abandoned", "unpublished", "nested", "no_lane", "unmatched",
            "removed",
        ],
        "details": stream,
        "events": stream,
        "marks": ["wanted", "refused", "removed"],
        "deferred": ["started", "measured", "bounded", "pending", "orphaned", "late", "unmatched", "refused"],
        "lost": ["spans", "details", "events"],
    }  # fmt: skip


@pytest.mark.ci
def test_status_can_be_limited_to_workers_or_services(worker: Start) -> None:
    started(worker, BRICKD_SERVICE="api")
    started(worker, BRICKD_SERVICE="api")
    started(worker, BRICKD_SERVICE="batch")
    assert [each["name"] for each in status("api")["workers"]] == ["api/0", "api/1"]
    assert [each["name"] for each in status("api/1", "batch")["workers"]] == ["api/1", "batch/0"]


@pytest.mark.ci
def test_declared_indexes_are_kept_and_others_fill_the_gaps(worker: Start) -> None:
    started(worker, BRICKD_SERVICE="api", BRICKD_WORKER="0")
    started(worker, BRICKD_SERVICE="api")
    started(worker, BRICKD_SERVICE="api", BRICKD_WORKER="0.tp3.pp1")
    started(worker, BRICKD_SERVICE="api")
    assert [each["name"] for each in status()["workers"]] == ["api/0", "api/0.tp3.pp1", "api/1", "api/2"]


def test_a_dead_worker_is_shown_reported_and_pruned(worker: Start, prefix: str) -> None:
    started(worker, BRICKD_SERVICE="api", BRICKD_WORKER="0").kill()
    live = started(worker, BRICKD_SERVICE="api", BRICKD_WORKER="0")
    document = status()
    assert {each["state"]: each["name"].split("~")[0] for each in document["workers"]} == {
        "live": "api/0",
        "died": "api/0",
    }
    assert [each["pid"] for each in document["workers"] if each["name"] == "api/0"] == [live.pid]
    assert {brick["count"] for brick in document["bricks"]} == {200}
    assert [problem["command"] for problem in document["problems"]] == ["brickd prune"]
    found = survey(prefix)
    (dead,) = [each for each in found.workers if not each.reading.alive]
    (problem,) = problems(Seen([dead._replace(name="api/older", together=66)]))
    assert problem.text == "api/older and 65 more died; the totals are kept"


@pytest.mark.slow
def test_prune_removes_dead_workers_only(worker: Start, prefix: str) -> None:
    started(worker).kill()
    live = started(worker)
    answer = brickd("prune", "--dry-run", "--json")
    assert len(json.loads(answer.stdout)["removed"]) == 1
    assert len(readings(prefix)) == 2
    assert len(json.loads(brickd("prune", "--json").stdout)["removed"]) == 1
    assert [reading.pid for reading in readings(prefix)] == [live.pid]


@pytest.mark.slow
def test_prune_removes_invalid_files_on_request(prefix: str) -> None:
    (SHM / f"{prefix}junk").write_bytes(b"no segment")
    left = brickd("prune", "--json")
    assert json.loads(left.stdout)["refused"][0]["segment"] == f"{prefix}junk"
    assert "--refused" in left.stderr
    assert len(json.loads(brickd("prune", "--refused", "--json").stdout)["removed"]) == 1
    assert not (SHM / f"{prefix}junk").exists()


def test_a_suggested_command_is_safe_to_paste(worker: Start) -> None:
    started(worker, 'brick.init(names=64)\nfor n in range(99):\n    with brick.span(str(n)): pass\npause()',
            BRICKD_SERVICE="x; touch y #")  # fmt: skip
    (problem,) = status()["problems"]
    assert shlex.split(problem["command"]) == ["brickd", "inspect", "x; touch y #/0"]


def test_demo_requires_a_number_of_seconds() -> None:
    result = brickd("demo", "--seconds", "nan")
    assert result.returncode == 2
    assert "nan is not a duration of 500ms to 10m (with ms, s, m or h; without a unit: seconds)" in result.stderr


def test_an_empty_value_is_shown_as_one() -> None:
    for arguments, expected in (
        (("diff", "--step", ""), "a step (a number, or a text that is not empty)"),
        (
            ("record", "--duration", ""),
            "a duration of 10ms to 8760h (with ms, s, m or h; without a unit: seconds)",
        ),
    ):
        refused = brickd(*arguments)
        start = f"brickd: Invalid value for '{arguments[1]}': '' is not {expected} (see"
        assert (refused.returncode, refused.stderr[: len(start)]) == (2, start)


def test_prune_removes_nothing_if_all_workers_live(worker: Start) -> None:
    started(worker)
    result = brickd("prune", "--json")
    assert (result.returncode, json.loads(result.stdout)["removed"]) == (0, [])


def test_an_invalid_segment_alone_is_quarantined(worker: Start, prefix: str) -> None:
    started(worker)
    (SHM / f"{prefix}junk").write_bytes(b"\x01" * 8192)
    document = status()
    assert sorted(each["state"] for each in document["workers"]) == ["live", "quarantined"]
    assert {brick["count"] for brick in document["bricks"]} == {100}
    (problem,) = document["problems"]
    assert "junk" in problem["text"]
    inspected = brickd("inspect", f"{prefix}junk")
    assert inspected.returncode == 2
    assert "not a segment" in inspected.stderr


def test_prune_is_not_suggested_for_files_that_it_keeps(prefix: str) -> None:
    os.mkfifo(SHM / f"{prefix}fifo")
    (SHM / f"{prefix}folder").mkdir()
    (SHM / f"{prefix}link").symlink_to("nowhere")
    problems = status()["problems"]
    assert [problem["command"] for problem in problems] == 3 * ["brickd doctor"]
    for arguments in ((), ("--refused",)):
        left = brickd("prune", *arguments).stderr.splitlines()
        assert len(left) == 3
        assert all(line.endswith(" (brickd doctor says what to do)") for line in left)


def test_status_and_inspect_use_the_singular_for_one_span(worker: Start) -> None:
    started(worker, "brick.init(lanes=1)\nwith brick.span('a'): pass\npause()", BRICKD_SERVICE="api")
    assert brickd("status").stdout.startswith("api  1 live  1 span  ")
    assert "  1 lane, " in brickd("inspect").stdout


@pytest.mark.ci
def test_the_screen_has_at_most_24_lines_and_80_columns(worker: Start, prefix: str) -> None:
    program = """
    for number in range(40):
        with brick.span(f"brick {number} " + 60 * "x"): pass
    pause()
    """
    for _ in range(7):
        started(worker, program, BRICKD_SERVICE="a service with a very long name" * 2)
    for number in range(9):
        (SHM / f"{prefix}junk{number}").write_bytes(b"\x01" * 8192)
    lines = brickd("status", COLUMNS="80").stdout.splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    assert "PROBLEMS" in lines[0]
    assert any("more problems: brickd workers" in line for line in lines[1:11])
    assert lines[-1].endswith(" more bricks: brickd bricks")


@pytest.mark.ci
def test_a_narrow_screen_keeps_the_names_of_services_and_the_verdict(worker: Start) -> None:
    for service in ("a long service", "b long service"):
        started(worker, BRICKD_SERVICE=service)
    wide = brickd("status", COLUMNS="80").stdout.splitlines()
    assert wide[0] == "a long service  1 live  200 spans  shared memory  no problem"
    exact = brickd("status", COLUMNS=f"{len(wide[0])}").stdout.splitlines()
    assert exact[:2] == wide[:2]
    cut = brickd("status", COLUMNS=f"{len(wide[0]) - 1}").stdout.splitlines()
    assert cut[0] == "a long servi…  1 live  200 spans  shared memory  no problem"
    assert cut[1] == wide[1] == "b long service  1 live  200 spans  shared memory"
    least = len("a long …" + wide[0].removeprefix("a long service"))
    for columns, first in ((least, "a long …  1 live"), (least - 1, "no problem")):
        shown = brickd("status", COLUMNS=f"{columns}").stdout.splitlines()
        assert (shown[0].startswith(first), max(map(len, shown)) <= columns) == (True, True)
    narrow = brickd("status", COLUMNS="40").stdout.splitlines()
    assert narrow[:3] == [
        "no problem",
        "a long …  1 live  200 spans  shared mem…",
        "b long …  1 live  200 spans  shared mem…",
    ]
    assert max(map(len, narrow)) == 40


def test_inspect_accepts_a_worker_by_name_and_a_segment_by_file(worker: Start, prefix: str) -> None:
    started(worker, BRICKD_SERVICE="api")
    (reading,) = readings(prefix)
    for name in ("api/0", reading.file):
        document = json.loads(brickd("inspect", name, "--json").stdout)
        assert (document["worker"], document["segment"]) == ("api/0", reading.file)
        assert [lane["begun"] for lane in document["lanes"]] == [200]
    screen = brickd("inspect").stdout
    assert "api/0" in screen
    assert "SUMMARIZED" in screen


def test_inspect_shows_the_span_ring(worker: Start, prefix: str) -> None:
    process = worker(
        """
        brick.init()
        report()
        os.read(0, 1)
        for number in range(5):
            with brick.span("b", step=number + 1, elements=number): pass
        pause()
        """
    )
    process.next_report()
    (reading,) = readings(prefix)
    turn_on_spans(SHM / reading.file)
    process.go()
    process.paused()
    document = json.loads(brickd("inspect", "--json", "-n", "3").stdout)
    (lane,) = document["lanes"]
    assert [(span["sequence"], span["brick"], int(span["step"], 16)) for span in lane["spans"]] == [
        (3, "b", 3),
        (4, "b", 4),
        (5, "b", 5),
    ]
    assert document["ledger"]["details"]["in_ring"] == 5


def test_inspect_shows_the_event_ring(worker: Start, prefix: str) -> None:
    process = worker(
        """
        b = brick.brick("b")
        with brick.step(17), brick.layer(3): ids = [b.defer(stream=0x7f00dead0040, elements=n) for n in range(4000)]
        brick.finalize(stream=0x7f00dead0040, durations={ids[0]: 1_250_000})
        b.defer(bytes=5); brick.finalize()
        pause()
        """
    )
    process.paused()
    document = json.loads(brickd("inspect", "--json", "-n", "3").stdout)
    (lane,) = document["lanes"]
    reported = [{name: value for name, value in event.items() if value is not None} for event in lane["events"]]
    ages = [event.pop("since_start_ns", None) for event in reported]
    assert 0 < ages[0] < ages[2] < 60e9
    started = {"kind": "defer", "brick": "b", "layer": 3, "step": f"{17:016x}", "bytes": 0}
    assert reported == [
        {"sequence": 3584, **started, "stream": "00007f00dead0040", "id": f"{(1 << 48) + 3584:016x}", "elements": 3583},
        {"sequence": 4001, "kind": "measured", "id": f"{(1 << 48) + 1:016x}", "duration_ns": 1_250_000},
        {"sequence": 4002, "kind": "finalize", "stream": "00007f00dead0040", "every_stream": False},
    ]
    assert document["ledger"]["events"] == {
        "consumed": 0,
        "dropped": {"defer": 417},
        "in_ring": 3586,
        "lost_with_daemon": 0,
        "removed": 0,
    }
    screen = brickd("inspect", "-n", "3").stdout
    assert "events    in ring 3,586  defer dropped 417\n" in screen
    assert f"newest    record {duration(ages[2])} after the start: AT is relative to it, in µs\n" in screen
    assert "event ring of lane 0, newest last:" in screen
    assert "7f00dead0040" in screen
    assert document["newest_since_start_ns"] == ages[2]
    titles, *rows = screen[screen.index("   #  EVENT") :].splitlines()
    cells = [row[: titles.index("AT (µs)") + len("AT (µs)")].split()[-1] for row in rows]
    assert cells == [f"{(ages[0] - ages[2]) / 1_000:,.1f}", "measured", "0.0"]
    (problem,) = status()["problems"]
    room = "a thread's ring holds 4,096 slots, and no daemon reads it (brickd up -d)"
    assert f"417 events dropped (417 defer): {room}" in problem["text"]


def turn_on_spans(segment: Path) -> None:
    """Set the flags as a consumer does, in the first word of the control page."""
    with segment.open("r+b", buffering=0) as file:
        os.pwrite(file.fileno(), (2).to_bytes(4, "little"), 4096)


def test_open_spans_are_shown_with_their_age(worker: Start) -> None:
    started(worker, 'with brick.span("all_reduce"):\n    pause()')
    (each,) = status()["workers"]
    (opened,) = each["open"]
    assert opened["brick"] == "all_reduce"
    assert 0 < opened["since_ns"] < 60e9


def test_losses_are_problems_with_a_fix(worker: Start) -> None:
    started(worker, LOSING)
    texts = " ".join(problem["text"] for problem in status()["problems"])
    assert "BRICKD_LANES" in texts
    assert "BRICKD_NAMES" in texts


@pytest.mark.ci
def test_what_was_lost_is_named_and_summed_the_same_everywhere(worker: Start) -> None:
    started(worker, LOSING, BRICKD_SERVICE="api")
    started(worker, "with brick.span('a'): pass\npause()", BRICKD_SERVICE="api")
    found = status()
    (spans,) = {each["lost"] for each in found["workers"] if each["lost"]}
    assert found["ledger"]["lost"] == {"spans": spans, "details": 0, "events": 0}
    assert document("workers")["ledger"] == found["ledger"]
    text = f"{spans} span{'s' if spans > 1 else ''}"
    first, *lines = brickd("status").stdout.splitlines()
    assert first.endswith(f", lost: {text}")
    screen = brickd("workers").stdout.splitlines()
    for table, at in ((lines, next(n for n, line in enumerate(lines) if line.startswith("WORKER"))), (screen, 0)):
        cells = [re.split(" {2,}", line) for line in table[at : at + 3]]
        assert {row[cells[0].index("LOST")] for row in cells[1:]} == {text, "0"}
    assert f"lost in all: {text}" in screen
    assert f"unhealthy: {spans} lost ({text}), expected none" in brickd("status", "--check").stdout


@pytest.mark.nightly
def test_the_demo_names_the_damaged_and_the_slow_worker_and_leaves_no_file() -> None:
    before = set(os.listdir(SHM))
    result = brickd("demo", "--seconds", "55")
    assert result.returncode == 0, result.stderr
    assert "demo/1 differs in layers.2.mlp.down.weight" in result.stdout
    assert "demo/1 differs from 3 that agree, first at mlp.down, layer 2" in result.stdout
    assert "the difference began there: the inputs were equal" in result.stdout
    assert "weight layers.2.mlp.down.weight differs in demo/1" in result.stdout
    assert "! demo/3 slow since" in result.stdout
    assert "4 live" in result.stdout
    assert not [name for name in set(os.listdir(SHM)) - before if name.startswith("demo-brickd-")]


@pytest.mark.ci
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_demo_that_is_ended_early_leaves_no_file_and_shows_no_traceback(number: int, tmp_path: Path) -> None:
    before = set(os.listdir(SHM))
    command = [sys.executable, "-P", "-m", "brickd", "demo", "--seconds", "20"]
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
    ) as demo:
        assert demo.stdout is not None
        demo.stdout.readline()
        os.killpg(demo.pid, number)
        _, err = demo.communicate()
    assert (demo.returncode, "Traceback" in err) == (128 + number, False), err
    assert os.listdir(tmp_path) == []
    assert not [name for name in set(os.listdir(SHM)) - before if name.startswith("demo-brickd-")]
