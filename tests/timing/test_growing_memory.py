"""Memory that only grows: which workers are named, how fast their memory grows, and how much memory is left."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up_workers import MadeUp

from brickd.analysis.timing.alarms import Alarm
from brickd.analysis.timing.growing_memory import GrowingMemory, grows
from brickd.base.cgroups import Room, room
from brickd.base.thresholds import Thresholds
from brickd.model.survey_snapshot import Snapshot
from brickd.model.workers import Survey, Usage

SECOND, MIB = 1_000_000_000, 1 << 20
THRESHOLDS = Thresholds().with_({"memory_over": 600, "memory_growth": 1})
# A function that returns a worker's memory in MiB after this number of minutes.
Course = Callable[[float], float]


def named(course: Course, minutes: float, thresholds: Thresholds = THRESHOLDS) -> list[list[Alarm]]:
    """Return the alarms of each check. There is a check every ten seconds."""
    memory, worker = GrowingMemory(lambda pid: Room(1 << 30, "of a test")), MadeUp(service="api").worker("api/0")
    found = []
    for look in range(round(6 * minutes)):
        rss_bytes = round(MIB * course(look / 6))
        survey = Survey([worker._replace(usage=Usage(0.0, rss_bytes))], [])
        found.append(memory.look(Snapshot(10 * look * SECOND, 0, survey), thresholds))
    return found


def first(course: Course, minutes: float = 60) -> float | None:
    """Return after how many minutes the worker is named; None if it is never named."""
    return next((look / 6 for look, alarms in enumerate(named(course, minutes)) if alarms), None)


def test_a_steady_leak_is_named_after_ten_minutes_with_slope_and_remaining_time() -> None:
    looks = named(lambda minute: 500 + 8 * minute, 11)
    assert [bool(each) for each in looks] == [look >= 60 for look in range(66)]
    (alarm,) = looks[-1]
    assert alarm.text == (
        "api/0: memory grows by 8.0 MiB/min for at least 10.0 min, now 587M;"
        " 1.0G are left (of a test), enough for 2.1 h at this rate"
    )
    assert (alarm.kind, alarm.service, alarm.workers, alarm.command) == (
        "memory", "api", ("api/0",), "brickd workers api",
    )  # fmt: skip


@pytest.mark.ci
def test_a_leak_in_steps_is_named_despite_noise() -> None:
    assert first(lambda minute: 500 + 30 * (minute // 3)) == pytest.approx(10, abs=4)
    assert first(lambda minute: 500 + 8 * minute + 20 * (round(6 * minute) % 5 != 0)) == pytest.approx(10, abs=1)


def test_a_worker_that_grows_only_at_its_start_is_not_named() -> None:
    assert first(lambda minute: 4_000 * min(1, minute / 6)) is None
    assert first(lambda minute: 4_000 * (1 - math.exp(-minute / 2))) is None
    assert first(lambda minute: 4_000) is None


@pytest.mark.parametrize("period", [1.5, 4, 9])
def test_a_sawtooth_is_not_named(period: float) -> None:
    assert first(lambda minute: 500 + 100 * (minute % period)) is None


def test_a_sawtooth_longer_than_the_window_is_not_named_after_its_first_fall() -> None:
    looks = named(lambda minute: 500 + 100 * (minute % 15), 60)
    assert {look // 6 // 15 for look, alarms in enumerate(looks) if alarms} == {0}


def test_a_leak_below_a_sawtooth_is_named() -> None:
    assert first(lambda minute: 500 + 40 * minute + 30 * (minute % 1.5)) == pytest.approx(10, abs=2)


@pytest.mark.ci
def test_a_named_leak_stays_named_down_to_half_of_the_threshold() -> None:
    assert first(lambda minute: 500 + 0.98 * minute) is None
    assert first(lambda minute: 500 + 1.02 * minute) is not None

    def slower(slope: float) -> list[bool]:
        course = named(lambda minute: 500 + 2 * min(minute, 20) + slope * max(0, minute - 20), 45)
        return [bool(each) for each in course]

    assert slower(0.6)[-1]
    assert not slower(0.4)[-1]


def test_a_gap_in_the_looks_restarts_the_detection() -> None:
    memory, worker = GrowingMemory(lambda pid: None), MadeUp(service="api").worker("api/0")
    alarms: Sequence[Alarm] = []
    for minute in (*range(11), *range(13, 23)):
        survey = Survey([worker._replace(usage=Usage(0.0, (500 + 8 * minute) * MIB))], [])
        alarms = memory.look(Snapshot(60 * minute * SECOND, 0, survey), THRESHOLDS)
        assert bool(alarms) == (minute == 10), minute
    survey = Survey([worker._replace(usage=Usage(0.0, 700 * MIB))], [])
    (alarm,) = memory.look(Snapshot(60 * 23 * SECOND, 0, survey), THRESHOLDS)
    assert alarm.text.endswith("; how much memory is left is unknown")


def test_a_changed_threshold_applies_from_then_on() -> None:
    memory, worker = GrowingMemory(lambda pid: None), MadeUp(service="api").worker("api/0")
    found = []
    for look in range(120):
        thresholds = THRESHOLDS.with_({"memory_over": 300}) if look >= 30 else THRESHOLDS
        survey = Survey([worker._replace(usage=Usage(0.0, (500 + 2 * look) * MIB))], [])
        found.append(bool(memory.look(Snapshot(10 * look * SECOND, 0, survey), thresholds)))
    assert found.index(True) == 30 + 30


@given(st.lists(st.integers(0, 1 << 40), min_size=1, max_size=70))
def test_a_named_worker_is_at_its_maximum_and_has_grown(least: list[int]) -> None:
    slope = grows(least[:-1], least[-1])
    assert slope >= 0
    if slope > 0:
        assert least[-2] > max(least[:-11], default=0)
        assert least[-2] > least[-11]


def test_the_remaining_memory_is_the_least_of_cgroup_and_machine(tmp_path: Path) -> None:
    group = tmp_path / "sys/fs/cgroup/api"
    group.mkdir(parents=True)
    (tmp_path / "proc/7").mkdir(parents=True)
    assert room(7, tmp_path) is None
    (tmp_path / "proc/meminfo").write_text("MemTotal: 9 kB\nMemAvailable:       300 kB\n")
    assert room(7, tmp_path) == Room(300 << 10, "of this machine")
    (tmp_path / "proc/7/cgroup").write_text("0::/api\n")
    (group / "memory.max").write_text("204800\n")
    (group / "memory.current").write_text("102400\n")
    (group / "memory.stat").write_text("inactive_file 2400\n")
    assert room(7, tmp_path) == Room(204_800 - 100_000, "/sys/fs/cgroup/api/memory.max")
    (tmp_path / "proc/meminfo").write_text("MemAvailable: many kB\n")
    assert room(7, tmp_path) == Room(204_800 - 100_000, "/sys/fs/cgroup/api/memory.max")
