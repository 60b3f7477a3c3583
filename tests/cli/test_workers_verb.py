"""`brickd workers` as a person runs it."""

from __future__ import annotations

import re

import pytest
from conftest import SHM, readings
from faults import Start
from serving import Daemon, still
from verbs import brickd, document, sheet, started

from brickd.views.problems import LISTED_MAX

# Three threads have recorded at the same time. One of them has ended, and another one has no open span.
THREADS = """
import threading
both, forever = threading.Barrier(3), threading.Event()
with brick.span("a"): pass
def run(end):
    with brick.span("b"): both.wait()
    both.wait()
    end.wait()
first = threading.Event()
for end in first, forever: threading.Thread(target=run, args=(end,), daemon=True).start()
both.wait()
both.wait()
first.set()
while len(os.listdir("/proc/self/task")) > 2: pass
with brick.span("waits"), brick.layer(7), brick.span("inside"):
    pause()
"""
ONE = 'with brick.span("a"): pass\npause()'


def test_a_worker_is_shown_with_its_identity_and_resources(worker: Start, prefix: str) -> None:
    process = started(worker, ONE, BRICKD_SERVICE="api", BRICKD_WORKER="0.tp3.pp1")
    (each,) = document("workers")["workers"]
    (reading,) = readings(prefix)
    assert (each["name"], each["coordinates"], each["state"]) == ("api/0.tp3.pp1", "0.tp3.pp1", "live")
    assert (each["pid"], each["uuid"], each["segment"]) == (process.pid, reading.uuid, reading.file)
    assert each["clock"] == reading.clock
    assert 0 < each["age_ns"] < 600e9
    assert each["memory_bytes"] == (SHM / reading.file).stat().st_blocks * 512 > 4096
    assert each["paths"] == {"used": 2, "room": 8192}, "the path of the span, and the path `other`"
    assert each["lanes"] == {"used": 1, "room": 32}


def test_recording_threads_are_distinguished_from_used_lanes(worker: Start) -> None:
    started(worker, THREADS)
    (each,) = document("workers")["workers"]
    assert (each["threads"], each["lanes"]["used"]) == (2, 3)
    (opened,) = each["open"]
    assert (opened["brick"], opened["layer"]) == ("inside", 7)
    # columns are separated by two spaces or more, because an age contains one space
    titles, row = (re.split(" {2,}", line) for line in brickd("workers").stdout.splitlines())
    assert row[titles.index("THREADS")] == "2"
    assert row[titles.index("LANES")] == "3/32"


def test_status_and_workers_print_the_same_entries(worker: Start) -> None:
    started(worker, ONE)
    one, other = (document(verb)["workers"][0] for verb in ("status", "workers"))
    assert one.pop("age_ns") < other.pop("age_ns")
    assert one == other


def test_dead_workers_and_quarantined_files_have_rows(worker: Start, prefix: str) -> None:
    started(worker, ONE, BRICKD_SERVICE="api").kill()
    started(worker, ONE, BRICKD_SERVICE="api")
    (SHM / f"{prefix}junk").write_bytes(b"\x01" * 8192)
    answer = document("workers")
    states = {each["state"]: each for each in answer["workers"]}
    assert sorted(states) == ["died", "live", "quarantined"]
    assert states["died"]["age_ns"] is None
    assert states["died"]["threads"] == 0
    assert states["quarantined"]["name"] == f"{prefix}junk"
    assert {problem["command"] for problem in answer["problems"]} == {"brickd prune", "brickd prune --refused"}
    screen = brickd("workers").stdout.splitlines()
    assert len(screen) == 1 + 3 + 2
    assert [row["state"] for row in sheet("workers")] == [each["state"] for each in answer["workers"]]


@pytest.mark.ci
def test_a_few_invalid_files_are_listed_and_all_are_counted(worker: Start, daemon: Daemon, prefix: str) -> None:
    started(worker, ONE, BRICKD_SERVICE="api")
    for number in range(LISTED_MAX + 6):
        (SHM / f"{prefix}{number:03}").write_bytes(b"\x01" * 8192)
    asked = document("workers"), document("status")
    unhealthy = document("status", "--check", code=1)["conditions"]
    daemon.end()
    for reported, verb in zip(asked, ("workers", "status"), strict=True):
        assert still(document(verb)) == still(reported)
        *listed, others = reported["workers"][1:]
        assert [each["segment"] for each in listed] == [f"{prefix}{number:03}" for number in range(LISTED_MAX)]
        assert {each["together"] for each in listed} == {1}
        assert (others["state"], others["together"], others["segment"]) == ("quarantined", 6, None)
        assert len(reported["problems"]) == 1 + LISTED_MAX
        first = reported["problems"][0]
        assert (first["text"], first["command"]) == (f"{LISTED_MAX + 6} files are quarantined", "brickd doctor")
    assert f"{LISTED_MAX + 6} quarantined" in [each["seen"] for each in unhealthy]
    assert f"…1 healthy, {LISTED_MAX + 1} with a problem" in brickd("status").stdout, (
        "the count does not include the five that are shown"
    )


def test_selected_workers_exclude_quarantined_files(worker: Start, prefix: str) -> None:
    for service in ("api", "api", "batch"):
        started(worker, ONE, BRICKD_SERVICE=service)
    (SHM / f"{prefix}junk").write_bytes(b"\x01" * 8192)
    assert [each["name"] for each in document("workers", "api/1", "batch")["workers"]] == ["api/1", "batch/0"]


@pytest.mark.ci
def test_all_workers_fit_the_width_without_losing_important_columns(worker: Start) -> None:
    program = 'brick.init(names=64, paths=64)\nwith brick.span("b" * 90):\n    pause()'
    for number in range(3):
        started(worker, program, BRICKD_SERVICE="a service with a long name" * 2, BRICKD_WORKER=str(number))
    lines = brickd("workers", COLUMNS="60").stdout.splitlines()
    assert max(map(len, lines)) <= 60
    assert len(lines) == 4
    assert lines[0].split()[:3] == ["WORKER", "PID", "STATE"]
    assert "OPEN NOW" in lines[0]
    assert "MEMORY" not in lines[0]
    assert "MEMORY" in brickd("workers").stdout
