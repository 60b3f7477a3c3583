"""Workers that wait for a processor: which workers are named, and which bricks do not count as slow."""

from __future__ import annotations

import math
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from slots import Fleet, Made, slow

from brickd.analysis.timing.findings import About, StragglerVerdict
from brickd.analysis.timing.stragglers import judge
from brickd.analysis.timing.worker_series import Host, SlotLook, look
from brickd.base.cgroups import processors, throttled_ns
from brickd.base.cpu_sharing import CpuSharing, Sharing, only_cpu
from brickd.base.thresholds import Thresholds
from brickd.base.timestamps import Moment
from brickd.daemon.process_usage import Scheduled, scheduled

# Returns the fraction of a slot in which a worker ran or waited.
Part = Callable[[int, int], float | None]


def looks(fleet: Fleet, waited: Part, ran: Part = lambda worker, slot: 0.1, threads: int = 1) -> list[SlotLook]:
    found, chance = [], random.Random(1)
    for number in range(6):
        hosts = {
            f"api/{worker}": Host(threads, ran(worker, number), waited(worker, number), 100 + worker)
            for worker in range(fleet.workers)
        }
        found.append(look(fleet.slot(number, chance.gauss), fleet.lives(), hosts))
    return found


def at(worker: int, part: float, others: float = 0.02) -> Part:
    """Return a function of worker and slot. It gives one worker `part`, and all others `others`, with small noise."""
    chance = random.Random(worker)
    return lambda each, slot: (part if each == worker else others) + chance.uniform(-0.0004, 0.0004)


EQUAL = Fleet(workers=4, bricks={"gemm": Made(4_000_000)})
# the slowness costs 100 ms of each second
SLOW = Fleet(workers=4, bricks={"gemm": Made(4_000_000, factor=slow(2, 100))})


def names(judged: StragglerVerdict) -> tuple[list[str], list[str]]:
    return [each.about.worker for each in judged.findings], [each.worker for each in judged.waiting]


def test_a_worker_that_waits_is_named_with_its_share_of_the_time() -> None:
    judged = judge(looks(EQUAL, at(2, 0.31)))
    (waiting,) = judged.waiting
    assert waiting.text == "api/2 waits for a processor 31 % of its time (median of all: 2.0 %)"
    assert (waiting.about, names(judged)[0]) == (About("api", "api/2", ""), [])
    where = replace(waiting, sharing=Sharing(3, 4711)).text
    assert where.endswith("; it may use only CPU 3, which it shares with PID 4711")
    assert replace(waiting, sharing=Sharing(3, None)).text.endswith("; it may use only CPU 3")
    assert replace(waiting, throttled=0.31).text.endswith("; its cgroup was throttled 31 % of the time")
    assert "throttled" not in replace(waiting, throttled=0.009).text


@pytest.mark.parametrize(
    ("waited", "named"),
    [
        (at(2, 0.7, others=0.7), False),  # all workers wait
        (at(2, 0.06, others=0.02), False),  # the worker waits less than 5 % longer than the others
        (at(2, 0.08, others=0.02), True),
        (lambda worker, slot: None if worker == 2 else 0.02, False),
        (lambda worker, slot: 0.3 * (worker == 2 and slot in (2, 4)), False),  # the worker waits only in some slots
    ],
)
def test_only_a_worker_that_always_waits_longer_than_the_others_is_named(waited: Part, *, named: bool) -> None:
    assert names(judge(looks(EQUAL, waited)))[1] == ["api/2"] * named


@pytest.mark.parametrize(("workers", "named"), [(1, 1), (2, 2), (3, 0)])
def test_workers_that_all_wait_are_named_only_in_a_service_of_one_or_two(workers: int, named: int) -> None:
    fleet = Fleet(workers=workers, bricks={"gemm": Made(4_000_000)})
    assert len(judge(looks(fleet, lambda worker, slot: 0.6)).waiting) == named


def test_a_named_worker_stays_named_down_to_half_of_the_threshold() -> None:
    for part, stays in ((0.048, True), (0.042, False)):
        found = looks(EQUAL, at(2, part, others=0.02))
        named = {About("api", "api/2", ""): found[0].slot.began}
        assert names(judge(found, named))[1] == ["api/2"] * stays
        assert names(judge(found))[1] == []


@pytest.mark.parametrize(("apart", "named", "stays"), [(0.004, True, True), (0.007, False, True), (0.01, False, False)])
def test_a_worker_must_exceed_the_spread_of_the_others(apart: float, *, named: bool, stays: bool) -> None:
    found = looks(EQUAL, lambda worker, slot: 0.0001 * slot + (0.12 if worker == 2 else 0.02 + apart * worker))
    assert names(judge(found))[1] == ["api/2"] * named
    assert names(judge(found, {About("api", "api/2", ""): found[0].slot.began}))[1] == ["api/2"] * stays


def exactly(*workers: float | Sequence[float]) -> Part:
    """Return a function that gives each worker its part of the time, without noise. A part is one number, or a number
    for each slot.
    """

    def part(worker: int, slot: int) -> float:
        given = workers[worker]
        return given if isinstance(given, float) else given[slot]

    return part


def waiting(*workers: float | Sequence[float], named: bool = False) -> list[str]:
    """Return the workers that are named as waiting; with `named`, the first worker was named before."""
    fleet = Fleet(workers=len(workers), bricks={"gemm": Made(4_000_000)})
    before = {About("api", "api/0", ""): Moment(0, 0)} if named else {}
    return names(judge(looks(fleet, exactly(*workers)), before))[1]


@pytest.mark.parametrize(("named", "least"), [(False, 0.05), (True, 0.025)])
def test_waiting_five_percent_more_names_a_worker_and_half_keeps_it_named(*, named: bool, least: float) -> None:
    others = (0.0,) * 4
    assert waiting(least, *others, named=named) == ["api/0"]
    assert waiting(math.nextafter(least, 0), *others, named=named) == []


def test_a_score_of_five_names_a_waiting_worker_and_half_keeps_it_named() -> None:
    # with these parts of the other workers, the score of `five` is exactly 5
    around, five = (0.25, 0.25, 0.23, 0.27), 0.25 + 0.23733453321419523
    assert waiting(five, *around) == ["api/0"]
    assert waiting(math.nextafter(five, 0), *around) == []
    assert waiting(0.25 + 0.1187, *around, named=True) == ["api/0"]
    assert waiting(0.25 + 0.1186, *around, named=True) == []


def test_four_waiting_slots_of_six_keep_a_worker_named_but_name_none() -> None:
    """In two slots, the worker's distance above the median is less than half of its mean distance over all slots."""
    unsteady, others = [1.0, 0.427, 1.0, 1.0, 0.427, 1.0], (0.0,) * 4
    assert waiting(unsteady, *others) == []
    assert waiting(unsteady, *others, named=True) == ["api/0"]
    # In one slot, the distance is slightly more than half of the mean. This slot counts like the others.
    assert waiting([*unsteady[:4], 0.43, 1.0], *others) == ["api/0"]


def test_a_worker_that_waits_since_the_third_slot_must_exceed_the_threshold_in_all_slots_together() -> None:
    # the mean without the lowest and the highest slot is 3/4 of this part
    for part, named in ((0.067, ["api/0"]), (0.066, [])):
        assert waiting([0.0, 0.0, *[part] * 4], *(0.0,) * 4) == named


def test_a_brick_explained_by_waiting_is_not_slow() -> None:
    judged = judge(looks(SLOW, at(2, 0.2)))
    assert names(judged) == ([], ["api/2"])
    (passed,) = judged.passed
    assert passed.reason == "it waits for a processor 20 % of its time (median of all: 2.0 %)"


@pytest.mark.parametrize(
    ("waited", "ran"),
    [
        (at(2, 0.04), at(2, 0.1, 0.1)),  # the worker waits longer by less than half of its cost
        (at(2, 0.2), at(2, 0.2, 0.1)),  # a slow operator waits longer, because it runs longer
        (lambda worker, slot: None, lambda worker, slot: None),  # the kernel does not report how long the worker waited
    ],
)
def test_a_brick_is_slow_unless_waiting_explains_it(waited: Part, ran: Part) -> None:
    assert names(judge(looks(SLOW, waited, ran)))[0] == ["api/2"]


@pytest.mark.parametrize(
    ("waited", "ran", "is_slow"),
    [
        (0.08, 0.1, False),  # the worker waits 60 ms longer in each second, which explains half of its cost
        (0.06, 0.1, True),
        (0.08, 0.14, False),
        (0.08, 0.16, True),  # the worker also computes 60 ms longer in each second
    ],
)
def test_without_processor_time_per_brick_waiting_must_explain_half_of_the_cost(
    waited: float, ran: float, *, is_slow: bool
) -> None:
    for unknown in (0, 2):  # four slots with known waiting times are enough for a verdict

        def waits(worker: int, slot: int, unknown: int = unknown) -> float | None:
            return None if slot < unknown else waited if worker == 2 else 0.02

        found = looks(SLOW, waits, lambda worker, slot: ran if worker == 2 else 0.1)
        assert names(judge([replace(each, processor={}) for each in found]))[0] == ["api/2"] * is_slow


def test_the_waiting_of_a_worker_that_came_later_is_compared_by_its_calls_in_a_second() -> None:
    def without(each: SlotLook) -> SlotLook:
        bricks = {
            key: {name: side for name, side in sides.items() if name != "api/2"} for key, sides in each.bricks.items()
        }
        return replace(each, lives={name: life for name, life in each.lives.items() if name != "api/2"}, bricks=bricks)

    # the worker waits 30 ms longer in each second than the others, which does not explain how slow it is
    found = [replace(each, processor={}) for each in looks(SLOW, exactly(0.2, 0.2, 0.23, 0.2))]
    assert names(judge([*map(without, found[:2]), *found[2:]]))[0] == ["api/2"]


def test_a_cost_is_limited_by_the_threads_of_the_last_slot() -> None:
    found = looks(Fleet(workers=4, bricks={"gemm": Made(4_000_000, factor=slow(2, 9_900), calls=500)}), at(2, 0.02))
    now = {worker: host._replace(threads=3) for worker, host in found[-1].hosts.items()}
    (finding,) = judge([*found[:-1], replace(found[-1], hosts=now)]).findings
    assert finding.cost_ns_per_s == 3e9


def test_workers_without_known_waiting_are_counted() -> None:
    judged = judge(looks(EQUAL, lambda worker, slot: None if worker < 3 else 0.1))
    assert judged.coverage[0].waits_unknown == 3
    assert judged.coverage[0].document()["waits_unknown"] == 3


def test_a_cost_never_exceeds_the_wall_time() -> None:
    """The worker makes 500 calls that take 400 ms instead of 4 ms. In a slot of 10 s, these calls take 200 s together,
    because their spans overlap.
    """
    fleet = Fleet(workers=4, bricks={"gemm": Made(4_000_000, factor=slow(2, 9_900), calls=500)})
    for threads in (1, 3):
        (finding,) = judge(looks(fleet, at(2, 0.02), threads=threads)).findings
        assert finding.cost_ns_per_s == threads * 1e9
    (finding,) = judge(fleet.looks(6, seed=1)).findings
    assert finding.cost_ns_per_s == 1e9, "without the kernel's data, the worker counts as one thread"


# ---- the data that the kernel reports

SPIN = "print(flush=True)\nwhile True: pass"


@contextmanager
def spinning(cpu: int, programs: int) -> Iterator[list[int]]:
    """Run processes that compute, all on one processor."""
    with_ = [
        subprocess.Popen([sys.executable, "-c", f"import os; os.sched_setaffinity(0, [{cpu}])\n{SPIN}"], stdout=-1)
        for _ in range(programs)
    ]
    try:
        for each in with_:
            assert each.stdout is not None
            each.stdout.readline()
        yield [each.pid for each in with_]
    finally:
        for each in with_:
            each.kill()
            each.communicate()


def until(so: Callable[[], bool]) -> None:
    while not so():
        os.sched_yield()


@pytest.mark.ci
def test_processes_sharing_their_only_processor_wait_and_name_each_other() -> None:
    cpu = min(os.sched_getaffinity(0))
    with spinning(cpu, 2) as pids:
        cpus = {pid: cpu for pid in pids if only_cpu(pid) is not None}
        assert list(cpus) == pids

        def waited_ns(pid: int) -> int:
            return sum(each.waited_ns for each in (scheduled(pid) or {}).values())

        def ran(pid: int) -> float:
            return sum(psutil.Process(pid).cpu_times()[:2])

        before, sharing = [(waited_ns(pid), ran(pid)) for pid in pids], CpuSharing()
        assert sharing.of(cpus) == {}, "nothing is known before a second reading"
        until(
            lambda: all(
                waited_ns(pid) > waited and ran(pid) > had + 0.05
                for pid, (waited, had) in zip(pids, before, strict=True)
            )
        )
        found = sharing.of(cpus)
        assert all(found[pid] not in (None, pid) for pid in pids)
        assert sharing.of({}) == {}
        assert sharing.of(cpus) == {}, "the time before the pause does not count"
    assert only_cpu(pids[0]) is None, "the process has ended"


def test_a_process_with_several_processors_has_no_only_one() -> None:
    assert only_cpu(os.getpid()) == (None if len(os.sched_getaffinity(0)) > 1 else min(os.sched_getaffinity(0)))
    assert only_cpu(0) is None


def stat(folder: Path, pid: int, ticks: int, cpu: int) -> None:
    (folder / str(pid)).mkdir(exist_ok=True)
    fields = ["S", *["0"] * 10, str(ticks), "0", *["0"] * 23, str(cpu)]
    (folder / str(pid) / "stat").write_text(f"{pid} (a) b) {' '.join(fields)}")


def test_the_process_that_ran_most_since_the_last_look_is_named(tmp_path: Path) -> None:
    sharing = CpuSharing(tmp_path)
    for pid, cpu in ((1, 0), (2, 0), (3, 0), (4, 1), (5, 1), (6, 2)):
        stat(tmp_path, pid, 1_000 * pid, cpu)
    cpus = {1: 0, 4: 1, 5: 1, 6: 2}
    assert sharing.of(cpus) == {}
    for pid, ran, cpu in ((1, 9, 0), (2, 2, 0), (3, 1, 0), (4, 1, 1), (5, 2, 1), (6, 5, 2)):
        stat(tmp_path, pid, 1_000 * pid + ran, cpu)
    assert sharing.of(cpus) == {1: 2, 4: 5, 5: 4}


def made_up(folder: Path, **schedstat: str | None) -> Path:
    for thread, text in schedstat.items():
        (folder / "7/task" / thread.strip("t")).mkdir(parents=True)
        if text is not None:
            (folder / "7/task" / thread.strip("t") / "schedstat").write_text(text)
    return folder


@pytest.mark.parametrize(
    ("schedstat", "found"),
    [
        ({"t7": "5 3 1\n", "t9": "8 2 1\n"}, {7: Scheduled(5, 3), 9: Scheduled(8, 2)}),
        ({"t7": "5 3 1\n", "t9": None}, None),  # the data of a thread cannot be read
        ({"t7": "5 -3 1\n"}, None),
        ({"t7": "5 3\n"}, None),
        ({}, None),
    ],
)
def test_unreadable_accounts_are_unknown(
    tmp_path: Path, schedstat: dict[str, str | None], found: dict[int, Scheduled] | None
) -> None:
    assert scheduled(7, made_up(tmp_path, **schedstat)) == found


def test_the_account_of_this_process_can_be_read() -> None:
    mine: Sequence[Scheduled] = list((scheduled(os.getpid()) or {}).values())
    if mine:  # the kernel may not report the waiting
        assert sum(each.ran_ns for each in mine) > 0


def test_throttling_of_a_cgroup_and_its_parents_is_added(tmp_path: Path) -> None:
    group = tmp_path / "sys/fs/cgroup/a/b"
    group.mkdir(parents=True)
    (tmp_path / "proc/7").mkdir(parents=True)
    (tmp_path / "proc/7/cgroup").write_text("3:cpu:/x\n0::/a/b\n")
    assert throttled_ns(7, tmp_path) is None
    (group / "cpu.stat").write_text("usage_usec 9\nnr_throttled 2\nthrottled_usec 1500\n")
    (group.parent / "cpu.stat").write_text("usage_usec 9\nnr_throttled 1\nthrottled_usec 20\n")
    (group.parent.parent / "cpu.stat").write_text("usage_usec 9\n")
    assert throttled_ns(7, tmp_path) == 1_520_000
    assert throttled_ns(8, tmp_path) is None


def test_throttling_in_cgroup_v1_comes_from_the_cpu_controller(tmp_path: Path) -> None:
    group = tmp_path / "sys/fs/cgroup/cpu/a"
    group.mkdir(parents=True)
    (tmp_path / "proc/7").mkdir(parents=True)
    (tmp_path / "proc/7/cgroup").write_text("3:cpuset:/x\n2:cpu,cpuacct:/a\n0::/\n")
    assert throttled_ns(7, tmp_path) is None
    (group / "cpu.stat").write_text("nr_throttled 2\nthrottled_time 1500\n")
    assert throttled_ns(7, tmp_path) == 1_500


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        ({}, None),
        ({"cpu.max": "max 100000"}, None),
        ({"cpu.max": "150000 100000"}, 1.5),
        ({"cpu.max": "400000 100000", "a/cpu.max": "200000 100000"}, 2.0),
        ({"cpu.max": "50000 100000", "a/cpu.max": "max 100000"}, 0.5),
        ({"cpu/a/cpu.cfs_quota_us": "-1", "cpu/a/cpu.cfs_period_us": "100000"}, None),
        ({"cpu/a/cpu.cfs_quota_us": "300000", "cpu/a/cpu.cfs_period_us": "100000"}, 3.0),
        ({"cpu.max": "1 0"}, None),
        ({"cpu.max": "nonsense"}, None),
    ],
)
def test_a_process_may_use_the_fewest_processors_of_its_cgroups(
    tmp_path: Path, files: dict[str, str], limit: float | None
) -> None:
    (tmp_path / "proc/7").mkdir(parents=True)
    (tmp_path / "proc/7/cgroup").write_text("2:cpu,cpuacct:/a\n0::/a\n")
    for name, text in files.items():
        path = tmp_path / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    assert processors(7, tmp_path) == limit


# ---- fleets without comparable workers


def alone(
    waited: Sequence[float | None],
    *,
    workers: int = 1,
    pinned: Sequence[int] = (),
    throttled: float | None = None,
    since: int = 0,
) -> StragglerVerdict:
    """Judge workers that wait for this share of each slot. From the slot `since` on, the workers in `pinned` may use
    only one processor.
    """
    fleet, found, chance = Fleet(workers=workers, bricks={"gemm": Made(4_000_000)}), [], random.Random(1)
    for number, part in enumerate(waited):
        hosts = {
            f"api/{n}": Host(
                1, 0.1, part, 100 + n, cpu=3 if n in pinned and number >= since else None, throttled=throttled
            )
            for n in range(workers)
        }
        found.append(look(fleet.slot(number, chance.gauss), fleet.lives(), hosts))
    return judge(found)


@pytest.mark.parametrize("workers", [1, 2])
def test_in_a_fleet_of_two_a_pinned_worker_waiting_a_quarter_is_named(workers: int) -> None:
    (waiting,) = alone([0.26] * 6, workers=workers, pinned=[0]).waiting
    assert waiting.text == "api/0 waits for a processor 26 % of its time"
    assert (waiting.document()["others_percent"], waiting.since.now_ns) == (None, 0)
    assert alone([0.24] * 6, workers=workers, pinned=[0]).waiting == ()
    assert names(alone([0.26] * 6, workers=workers))[1] == []
    assert names(alone([0.51] * 6, workers=workers))[1] == [f"api/{n}" for n in range(workers)]
    assert names(alone([0.49] * 6, workers=workers))[1] == []
    assert names(alone([0.26] * 6, pinned=[0], since=5))[1] == ["api/0"], "the worker is pinned now"
    for pinned, least in (([0], 0.25), ([], 0.5)):
        assert names(alone([least] * 6, workers=1, pinned=pinned))[1] == ["api/0"]
        assert names(alone([least - 0.001] * 6, workers=1, pinned=pinned))[1] == []


def test_waiting_counts_after_four_consecutive_slots() -> None:
    assert names(alone([0.1, 0.1, 0.5, 0.5, 0.5], pinned=[0]))[1] == []
    assert alone([None, 0.1, 0.5, 0.5, 0.5, 0.5], pinned=[0]).waiting[0].since.now_ns == 20 * 10**9
    assert names(alone([0.5, 0.5, 0.5, 0.1], pinned=[0]))[1] == []
    assert names(alone([0.5, 0.5, 0.5, None], pinned=[0]))[1] == []


def test_a_pinned_worker_is_named_and_a_pinned_fleet_is_not() -> None:
    assert names(alone([0.3] * 6, workers=4, pinned=[1]))[1] == ["api/1"]
    assert names(alone([0.3] * 6, workers=4, pinned=[0, 1]))[1] == ["api/0", "api/1"]
    assert names(alone([0.3] * 6, workers=4, pinned=[0, 1, 2]))[1] == []
    assert names(alone([0.3] * 6, workers=4))[1] == []


def test_workers_throttled_for_half_of_their_waiting_are_named_with_that() -> None:
    (waiting, *others) = alone([0.3] * 6, workers=3, throttled=0.15).waiting
    assert (waiting.throttled, len(others)) == (0.15, 2)
    assert waiting.text.endswith("(median of all: 30 %); its cgroup was throttled 15 % of the time")
    assert waiting.document()["throttled_percent"] == 15
    assert alone([0.3] * 6, workers=3, throttled=0.14).waiting == ()


def test_configured_thresholds_apply_to_waiting_and_stragglers() -> None:
    calm = Thresholds().with_({"waits_percent": 35, "straggler_percent": 110})
    found = looks(EQUAL, at(2, 0.31))
    assert names(judge(found, thresholds=calm))[1] == []
    slow_ones = looks(SLOW, at(2, 0.04), at(2, 0.1, 0.1))
    assert names(judge(slow_ones))[0] == ["api/2"]
    assert names(judge(slow_ones, thresholds=calm))[0] == []
    dear = Thresholds().with_({"straggler_cost_percent": 11})
    assert "costs" in judge(slow_ones, thresholds=dear).passed[0].reason
    assert names(judge(slow_ones, thresholds=Thresholds().with_({"straggler_cost_percent": 9})))[0] == ["api/2"]


# ---- workers that compute, on a busy host


def computing(busy: Callable[[int, int], float], factor: float = 1.2) -> list[SlotLook]:
    """Return the slots of workers that only compute and wait. Their calls take longer by a factor that depends on the
    worker and the slot.
    """

    def longer(worker: int, slot: int) -> float:
        return busy(worker, slot) * (factor if worker == 2 else 1.0)

    def ran(worker: int, slot: int) -> float:
        return 0.1 * (factor if worker == 2 else 1.0)

    def waited(worker: int, slot: int) -> float:
        return ran(worker, slot) * (busy(worker, slot) - 1) + 0.01

    return looks(Fleet(workers=4, bricks={"gemm": Made(4_000_000, factor=longer)}), waited, ran)


def noise(worker: int, slot: int) -> float:
    """Return a random factor of 2 to 6 for a worker and a slot."""
    return 2 + 4 * random.Random(100 * worker + slot).random()


def test_calls_longer_than_a_time_slice_are_compared_by_processor_time() -> None:
    (finding,) = judge(computing(noise)).findings
    assert (finding.about.worker, round(finding.row.excess_percent or 0)) == ("api/2", 20)
    assert names(judge(computing(noise, factor=1.0)))[0] == []
    unknown = [replace(each, processor={}) for each in computing(noise)]
    assert names(judge(unknown))[0] == []


def apart(chance: random.Random) -> Callable[[int, int], float]:
    """Return a function that gives a random factor of 1 to 20 for each worker and slot."""
    factors = [[1 + 19 * chance.random() for _ in range(6)] for _ in range(4)]
    return lambda worker, slot: factors[worker][slot]


@pytest.mark.ci
def test_equal_workers_on_a_busy_host_raise_no_alarm() -> None:
    """In this test, longer times and longer waits are independent of each other."""
    for seed in range(40):
        chance = random.Random(seed)
        longer, waits = apart(chance), apart(chance)

        def waited(worker: int, slot: int, waits: Callable[[int, int], float] = waits) -> float:
            return 0.025 * waits(worker, slot)

        fleet = Fleet(workers=4, bricks={"gemm": Made(1_000_000, factor=longer)})
        assert names(judge(looks(fleet, waited, lambda worker, slot: 0.025))) == ([], []), seed


def test_more_processor_time_without_longer_calls_is_not_slow() -> None:
    """Another thread of the worker computes at the same time."""
    found = looks(EQUAL, lambda worker, slot: 0.05, lambda worker, slot: 0.09 if worker == 2 else 0.06)
    assert names(judge(found))[0] == []


def test_processor_time_counts_from_a_score_of_five_on_or_half_of_that_for_a_named_worker() -> None:
    def judged(excess: float, noise: float, waited: float, *, named: bool = False) -> StragglerVerdict:
        found = []
        for slot, each in enumerate(looks(SLOW, at(2, waited))):
            times = {f"api/{n}": excess * (n == 2) + (noise if (slot + n) % 2 else -noise) for n in range(4)}
            found.append(replace(each, processor=times))
        about = About("api", "api/2", "gemm")
        return judge(found, {about: found[0].slot.began} if named else {})

    # The score of the processor time is 3.2, and the score of the calls is above 5. The calls decide.
    (finding,) = judged(0.6, 0.2, 0.02).findings
    assert (finding.row.score or 0) > 5
    (finding,) = judged(0.6, 0.2, 0.02, named=True).findings
    assert round(finding.row.score or 0, 1) == 3.2
    # The long wait explains the longer calls, and the processor time is too uncertain to contradict that.
    assert names(judged(0.15, 0.05, 0.2))[0] == []
    assert names(judged(0.15, 0.05, 0.2, named=True))[0] == ["api/2"]


@pytest.mark.parametrize("ran", [0.02, 0.09])
def test_processor_time_counts_only_if_all_workers_compute(ran: float) -> None:
    """The workers record only a tenth of their time. One worker waits for a device."""
    first = looks(EQUAL, lambda worker, slot: 0.0, lambda worker, slot: ran if worker == 0 else 0.1)[0]
    assert len(first.processor) == 4 * (ran == 0.09)


def busy(
    slow_brick: str,
    factor: float,
    *,
    others_factor: float = 1.0,
    seed: int = 1,
    longest: float = 6,
    noise: float = 0.01,
    idle: float = 6,
    luck: float = 1,
) -> list[SlotLook]:
    """Return the slots of four workers that compute. Random factors of 2 to 6 slow them down, and one of them also
    takes longer in one brick.
    """
    chance = random.Random(seed)
    plain = {"attention": 2e6, "gemm": 3e6, "mlp": 1.5e6, "lm_head": 0.6e6}
    more = {name: factor if name == slow_brick else others_factor for name in plain}
    found = []
    for number in range(6):
        waits = {(name, n): 2 + (longest - 2) * chance.random() for name in plain for n in range(4)}
        bricks = {}
        for name, ns in plain.items():

            def longer(n: int, _: int, name: str = name, waits: dict[tuple[str, int], float] = waits) -> float:
                return waits[name, n] * (more[name] if n == 2 else 1.0) * (luck if (name, n) == (slow_brick, 2) else 1)

            bricks[name] = Made(ns, calls=100, factor=longer)
        ran = [sum(ns * (more[name] if n == 2 else 1.0) for name, ns in plain.items()) / 1e8 for n in range(4)]
        ran = [each * (1 + chance.gauss(0, noise)) for each in ran]
        hosts = {f"api/{n}": Host(1, part, idle * part, 100 + n) for n, part in enumerate(ran)}
        fleet = Fleet(workers=4, bricks=bricks)
        found.append(look(fleet.slot(number, chance.gauss), fleet.lives(), hosts))
    return found


@pytest.mark.parametrize("brick", ["attention", "gemm", "mlp"])
def test_on_a_busy_host_processor_time_names_worker_and_wall_time_brick(brick: str) -> None:
    (finding,) = judge(busy(brick, 2.0)).findings
    assert (finding.about.worker, finding.about.brick) == ("api/2", brick)
    assert 85 <= (finding.row.excess_percent or 0) <= 115
    without = [replace(each, processor={}) for each in busy(brick, 2.0)]
    assert names(judge(without))[0] == []


def test_if_wall_times_do_not_single_out_a_brick_none_is_named() -> None:
    assert names(judge(busy("lm_head", 1.2)))[0] == [], "the brick runs only a little longer"
    assert names(judge(busy("", 2.0, others_factor=1.1)))[0] == [], "all bricks take longer"


@pytest.mark.ci
def test_equal_computing_workers_on_a_busy_host_raise_no_alarm() -> None:
    for seed in range(60):
        judged = judge(busy("", 1.0, seed=seed))
        assert names(judged) == ([], []), seed


def test_imprecise_processor_time_does_not_clear_a_small_brick() -> None:
    """If 8 % of the work takes 30 % longer, the processor time grows by 2.5 %, which may be chance."""
    for seed in range(5):
        (finding,) = judge(busy("lm_head", 1.3, seed=seed, longest=2, noise=0.03, idle=1)).findings
        assert finding.about.brick == "lm_head"


def test_processor_time_shows_stragglers_despite_random_wall_times() -> None:
    judged = judge(busy("gemm", 1.2, longest=2.5, noise=0.002, luck=4))
    (finding,) = judged.findings
    assert (finding.about.worker, finding.about.brick, judged.passed) == ("api/2", "gemm", ())
    assert 15 <= (finding.row.excess_percent or 0) <= 25, "the excess is the excess of the processor time"
