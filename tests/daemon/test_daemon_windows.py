"""The numbers that a daemon shows for the last seconds, and the memory of the workers' processes."""

from __future__ import annotations

import json
import re
from typing import Any

import psutil
import pytest
from conftest import SHM, Worker
from faults import Start
from machines import machine
from running import running
from verbs import brickd

from brickd.model import retained_workers
from brickd.model.brick_totals import bricks
from brickd.model.survey_snapshot import Snapshot
from brickd.model.windows import Windows
from brickd.recording import body_codec
from brickd.shm.segment_files import find
from brickd.state.checkpoint import decode

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
    """Start a worker that has recorded spans before the daemon starts."""
    early = worker(EARLY_AND_LATE, BRICKD_SERVICE="api")
    early.paused()
    return early


@pytest.mark.ci
def test_a_window_starts_at_the_daemons_first_pass(worker: Start) -> None:
    process = late(worker)
    with running() as daemon:
        daemon.until("worker_found")
        process.go()
        process.paused()
        for verb in ("bricks", "tree"):
            assert counts(asked(verb)) == {"early": 30, "late": 10}
            assert counts(asked(verb, "--over", "60s")) == {"late": 10}
            assert counts(asked(verb, "--over", "30")) == counts(asked(verb, "--over", "0.5m")) == {"late": 10}
            assert re.search(r"^brickd: over 60s counts the last [\d.]+ m?s: a ", brickd(verb, "--over", "60").stderr)
            assert brickd(verb).stderr == brickd(verb, "--over", "start").stderr == ""
        assert counts(asked("status")) == {"late": 10}
        assert brickd("status").stderr == ""
        assert counts(asked("status", "--over", "start")) == {"early": 30, "late": 10}


@pytest.mark.ci
def test_rates_are_per_second_of_the_window(worker: Start) -> None:
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
    # minimum and maximum are known only for the whole life of a worker, not for a window
    assert brick["min_ns"] is brick["max_ns"] is None


@pytest.mark.slow
def test_a_worker_that_dies_removes_nothing_from_a_window(worker: Start) -> None:
    process = late(worker)
    with running() as daemon:
        process.go()
        process.paused()
        process.kill()
        daemon.until("worker_died")
        assert counts(asked("bricks", "--over", "60s")) == {"late": 10}
        assert counts(asked("bricks")) == {"early": 30, "late": 10}


@pytest.mark.ci
def test_the_screen_names_the_time_of_its_counts(worker: Start) -> None:
    process = late(worker)
    with running():
        assert re.search(r"no spans in the last [\d.]+ m?s", brickd("status").stdout)
        process.go()
        process.paused()
        for verb in ("status", "bricks", "tree"):
            shown = brickd(verb, "--over", "60s").stdout
            assert ", last " in shown
            assert "early" not in shown
            assert ", last " not in brickd(verb, "--over", "start").stdout


def test_a_window_that_is_not_kept_is_refused_with_the_kept_range() -> None:
    for verb in ("status", "bricks", "tree", "roofline"):
        refused = brickd(verb, "--over", "72h")
        assert refused.returncode == 2
        assert "72h is not a duration of 10s to 48h (with ms, s, m or h; without a unit" in refused.stderr


def test_without_a_daemon_there_are_no_windows(worker: Start) -> None:
    late(worker)
    for verb in ("status", "bricks", "tree"):
        for period in ("60s", "2h"):
            refused = brickd(verb, "--over", period)
            assert refused.returncode == 3
            assert "start one: brickd up -d" in refused.stderr
    assert counts(asked("status")) == {"early": 30}


def test_a_window_cannot_be_sorted_by_the_longest_span(worker: Start) -> None:
    refused = brickd("bricks", "--sort", "max", "--over", "10s")
    assert refused.returncode == 2
    assert "use sort=p99, or over=start" in refused.stderr


@pytest.mark.ci
def test_the_daemon_shows_the_memory_of_each_worker(worker: Start, prefix: str) -> None:
    process = late(worker)
    with running():
        (entry,) = asked("workers")["workers"]
        resident = psutil.Process(process.pid).memory_info().rss
        assert " RSS " in brickd("workers").stdout.splitlines()[0]
    assert entry["cpu_percent"] is None  # the processor time is unknown after a single reading
    assert resident / 2 < entry["rss_bytes"] < resident * 2
    (entry,) = asked("workers")["workers"]
    assert entry["rss_bytes"] is None
    assert "RSS" not in brickd("workers").stdout


# ---- in one process: the test controls the snapshots


def ended(process: Worker) -> None:
    process.go()
    assert process.end() == 0


def test_a_worker_first_read_after_its_death_is_in_no_window(worker: Start, prefix: str) -> None:
    hidden = late(worker)
    (file,) = find(prefix)
    away = (SHM / file).rename(SHM / f"away-{file}")
    with machine(prefix) as here:
        seen = late(worker)
        here.tick()
        here.look()
        for process in (hidden, seen):
            process.go()
            process.paused()
            process.kill()
        away.rename(SHM / file)
        for _ in range(3):  # a worker without a lock counts as dead after five seconds
            here.tick()
        assert [each.reading.alive for each in here.survey().workers] == [False, False]
        assert here.totals() == {"early": 60, "late": 20}
        assert here.window() == {"late": 10}


@pytest.mark.ci
def test_merging_and_forgetting_dead_workers_removes_nothing_from_a_window(
    worker: Start, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retained_workers, "GONE_MAX", 1)
    with machine(prefix) as here:
        processes = [late(worker) for _ in range(6)]
        here.tick()
        here.look()
        for process in processes:
            process.go()
            process.paused()

        def end(count: int) -> None:
            for _ in range(count):
                ended(processes.pop(0))
            here.tick()

        assert here.window() == {"late": 60}
        end(3)
        assert [each.together for each in here.survey().workers if not each.reading.alive] == [1, 2]
        assert here.window() == {"late": 60}
        in_flight = here.survey()
        here.forget()
        assert here.window(in_flight) == {"late": 60}
        here.windows.take(Snapshot.of(in_flight, here.now_ns, here.now_ns))
        assert here.window() == {"late": 30}
        end(3)
        assert here.totals() == {"early": 90, "late": 30}
        assert here.window() == {"late": 30}, "forgotten totals do not come back when dead workers are merged"


@pytest.mark.ci
def test_a_recorded_window_is_unchanged_after_its_dead_workers_are_forgotten(
    worker: Start, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retained_workers, "GONE_MAX", 1)
    taken: list[Snapshot] = []
    with machine(prefix) as here:
        processes = [late(worker) for _ in range(5)]
        here.tick()
        taken.append(Snapshot.of(here.survey(), here.now_ns, here.now_ns))
        for process in processes:
            process.go()
            process.paused()
        for _ in range(2):
            for _ in range(2):
                ended(processes.pop())
            here.tick()
            if len(processes) == 3:
                here.forget()
        here.windows.take(taken[0])
        taken.append(Snapshot.of(here.survey(), here.now_ns + 1, here.now_ns + 1))
        seen = here.window()
    assert seen == {"late": 30}
    read = [reread(each) for each in taken]
    replay = Windows()
    replay.take(read[0])
    window = replay.over(read[1].survey.workers, read[1].now_ns, 6)
    assert window is not None
    assert {each.name: each.row["count"] for each in bricks(window.workers) if each.row["count"]} == seen


def reread(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot after encoding and decoding it."""
    tables = body_codec.tables(snapshot, set())
    assert tables is not None
    body = body_codec.snapshot(snapshot, None, body_codec.RecordingCounts())
    return body_codec.read_snapshot(body, snapshot.at_ns, body_codec.read_tables(tables)[0]).snapshot


def test_a_restarted_daemon_starts_new_windows(worker: Start, prefix: str) -> None:
    stays, dies = late(worker), late(worker)
    with machine(prefix) as first:
        first.look()
        dies.go()
        dies.paused()
        ended(dies)
        first.tick()
        assert first.window() == {"late": 10}
    with machine(prefix, decode(first.kept)) as second:
        second.look()
        assert second.window() == {}
        stays.go()
        stays.paused()
        assert second.window() == {"late": 10}
        assert second.totals() == {"early": 60, "late": 20}


def test_a_recording_without_clocks_can_be_read(worker: Start, prefix: str) -> None:
    late(worker)
    with machine(prefix) as here:
        taken = Snapshot.of(here.survey(), 1, 1)
    tables = body_codec.tables(taken, set())
    assert tables is not None
    body = json.loads(body_codec.snapshot(taken, None, body_codec.RecordingCounts()))
    del body["clocks"], body["workers"][0]["added"]
    read = body_codec.read_snapshot(json.dumps(body).encode(), 1, body_codec.read_tables(tables)[0]).snapshot
    assert (read.survey.clocks, read.survey.workers[0].added) == ({}, ())
    assert reread(taken).survey.clocks == taken.survey.clocks != {}
