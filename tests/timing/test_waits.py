"""Workers that wait for a processor: who is named for it, whose brick is not called slow, what the kernel says."""

from __future__ import annotations

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
from brickd.base.cpu_sharing import CpuSharing, Sharing
from brickd.daemon.process_usage import Scheduled, scheduled

# The part of the time that a worker ran or waited in a slot.
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
    """One worker so much, the others so much, all by a little more or less."""
    chance = random.Random(worker)
    return lambda each, slot: (part if each == worker else others) + chance.uniform(-0.0004, 0.0004)


EQUAL = Fleet(workers=4, bricks={"gemm": Made(4_000_000)})
SLOW = Fleet(workers=4, bricks={"gemm": Made(4_000_000, factor=slow(2, 100))})  # costs 100 ms of each second


def names(judged: StragglerVerdict) -> tuple[list[str], list[str]]:
    return [each.about.worker for each in judged.findings], [each.worker for each in judged.waiting]


def test_a_worker_that_waits_is_named_with_the_part_of_its_time() -> None:
    judged = judge(looks(EQUAL, at(2, 0.31)))
    (waiting,) = judged.waiting
    assert waiting.text == "api/2 waits for a processor 31 % of its time (median of all: 2.0 %)"
    assert (waiting.about, names(judged)[0]) == (About("api", "api/2", ""), [])
    where = replace(waiting, sharing=Sharing(3, 4711)).text
    assert where.endswith("; it may use CPU 3 alone, which it shares with PID 4711")
    assert replace(waiting, sharing=Sharing(3, None)).text.endswith("; it may use CPU 3 alone")


@pytest.mark.parametrize(
    ("waited", "named"),
    [
        (at(2, 0.7, others=0.7), False),  # all wait
        (at(2, 0.06, others=0.02), False),  # less than 5 % more
        (at(2, 0.08, others=0.02), True),
        (lambda worker, slot: None if worker == 2 else 0.02, False),
        (lambda worker, slot: 0.3 * (worker == 2 and slot in (2, 4)), False),  # in some slots only
    ],
)
def test_only_a_worker_that_waits_longer_than_the_others_all_the_time_is_named(waited: Part, *, named: bool) -> None:
    assert names(judge(looks(EQUAL, waited)))[1] == ["api/2"] * named


def test_one_that_is_named_stays_so_down_to_half_of_it() -> None:
    for part, stays in ((0.048, True), (0.042, False)):
        found = looks(EQUAL, at(2, part, others=0.02))
        named = {About("api", "api/2", ""): found[0].slot.began}
        assert names(judge(found, named))[1] == ["api/2"] * stays
        assert names(judge(found))[1] == []


def test_a_brick_is_not_slow_if_its_worker_waits_that_much_longer_and_runs_no_longer() -> None:
    judged = judge(looks(SLOW, at(2, 0.2)))
    assert names(judged) == ([], ["api/2"])
    (passed,) = judged.passed
    assert passed.reason == "it waits for a processor 20 % of its time, and the median of all is 2.0 %"


@pytest.mark.parametrize(
    ("waited", "ran"),
    [
        (at(2, 0.04), at(2, 0.1, 0.1)),  # it waits by less than half of what it costs
        (at(2, 0.2), at(2, 0.2, 0.1)),  # a slow operator waits for longer, for it runs for longer
        (lambda worker, slot: None, lambda worker, slot: None),  # the kernel does not say
    ],
)
def test_a_brick_is_slow_unless_waiting_explains_it(waited: Part, ran: Part) -> None:
    assert names(judge(looks(SLOW, waited, ran)))[0] == ["api/2"]


def test_the_workers_of_which_nothing_is_known_are_counted() -> None:
    judged = judge(looks(EQUAL, lambda worker, slot: None if worker < 3 else 0.1))
    assert judged.coverage[0].waits_unknown == 3
    assert judged.coverage[0].document()["waits_unknown"] == 3


def test_what_is_claimed_is_never_more_than_the_time_on_the_wall() -> None:
    """A hundred times as slow, in 500 calls of 4 ms: 200 s in 10 s, by spans that overlap."""
    fleet = Fleet(workers=4, bricks={"gemm": Made(4_000_000, factor=slow(2, 9_900), calls=500)})
    for threads in (1, 3):
        (finding,) = judge(looks(fleet, at(2, 0.02), threads=threads)).findings
        assert finding.cost_ns_per_s == threads * 1e9


# ---- what the kernel says

SPIN = "print(flush=True)\nwhile True: pass"


@contextmanager
def spinning(cpu: int, programs: int) -> Iterator[list[int]]:
    """Processes that compute on one processor."""
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


def test_a_process_that_shares_its_only_processor_waits_and_the_other_one_is_known() -> None:
    cpu = min(os.sched_getaffinity(0))
    with spinning(cpu, 2) as (mine, other):

        def waited_ns() -> int:
            return sum(each.waited_ns for each in (scheduled(mine) or {}).values())

        before, sharing = waited_ns(), CpuSharing()
        sharing.of(mine)
        ran = sum(psutil.Process(other).cpu_times()[:2])
        until(lambda: waited_ns() > before and sum(psutil.Process(other).cpu_times()[:2]) > ran + 0.05)
        found = sharing.of(mine)
        assert found is not None
        assert found.cpu == cpu
        assert found.pid not in (None, mine)
        os.sched_setaffinity(mine, os.sched_getaffinity(0))
        if len(os.sched_getaffinity(0)) > 1:
            assert sharing.of(mine) is None
    assert sharing.of(mine) is None


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
        ({"t7": "5 3 1\n", "t9": None}, None),  # it cannot be read
        ({"t7": "5 -3 1\n"}, None),
        ({"t7": "5 3\n"}, None),
        ({}, None),
    ],
)
def test_what_cannot_be_read_is_not_known(
    tmp_path: Path, schedstat: dict[str, str | None], found: dict[int, Scheduled] | None
) -> None:
    assert scheduled(7, made_up(tmp_path, **schedstat)) == found


def test_the_account_of_this_process_is_read() -> None:
    mine: Sequence[Scheduled] = list((scheduled(os.getpid()) or {}).values())
    if mine:  # else the kernel has none
        assert sum(each.ran_ns for each in mine) > 0


# ---- workers that compute, on a busy host


def computing(busy: Callable[[int, int], float], factor: float = 1.2) -> list[SlotLook]:
    """Workers that only compute and wait; their calls take longer by a factor that is another in each slot."""

    def longer(worker: int, slot: int) -> float:
        return busy(worker, slot) * (factor if worker == 2 else 1.0)

    def ran(worker: int, slot: int) -> float:
        return 0.1 * (factor if worker == 2 else 1.0)

    def waited(worker: int, slot: int) -> float:
        return ran(worker, slot) * (busy(worker, slot) - 1) + 0.01

    return looks(Fleet(workers=4, bricks={"gemm": Made(4_000_000, factor=longer)}), waited, ran)


def noise(worker: int, slot: int) -> float:
    """Of 2 to 6, by the worker and the slot."""
    return 2 + 4 * random.Random(100 * worker + slot).random()


def test_calls_that_are_longer_than_a_turn_on_a_busy_processor_are_compared_by_the_time_in_which_they_ran() -> None:
    (finding,) = judge(computing(noise)).findings
    assert (finding.about.worker, round(finding.row.excess_percent or 0)) == ("api/2", 20)
    assert names(judge(computing(noise, factor=1.0)))[0] == []
    unknown = [
        replace(each, bricks={key: {n: b._replace(ran=None) for n, b in of.items()} for key, of in each.bricks.items()})
        for each in computing(noise)
    ]
    assert names(judge(unknown))[0] == []


def apart(chance: random.Random) -> Callable[[int, int], float]:
    """A factor of 1 to 20 for each worker and slot."""
    factors = [[1 + 19 * chance.random() for _ in range(6)] for _ in range(4)]
    return lambda worker, slot: factors[worker][slot]


def test_of_equal_workers_on_a_busy_host_none_is_named() -> None:
    """How much longer they take and how much longer they wait have nothing to do with each other."""
    for seed in range(40):
        chance = random.Random(seed)
        longer, waits = apart(chance), apart(chance)

        def waited(worker: int, slot: int, waits: Callable[[int, int], float] = waits) -> float:
            return 0.025 * waits(worker, slot)

        fleet = Fleet(workers=4, bricks={"gemm": Made(1_000_000, factor=longer)})
        assert names(judge(looks(fleet, waited, lambda worker, slot: 0.025))) == ([], []), seed


def test_a_worker_that_runs_for_longer_and_takes_no_longer_is_not_slow() -> None:
    """Another thread of it computes beside the brick."""
    found = looks(EQUAL, lambda worker, slot: 0.05, lambda worker, slot: 0.09 if worker == 2 else 0.06)
    assert names(judge(found))[0] == []


@pytest.mark.parametrize("ran", [0.02, 0.09])
def test_only_where_all_compute_it_counts_how_long_they_ran(ran: float) -> None:
    """They record a tenth of the time, of which one waits for a device."""
    first = looks(EQUAL, lambda worker, slot: 0.0, lambda worker, slot: ran if worker == 0 else 0.1)[0]
    sides = first.bricks["api", "gemm"].values()
    assert [side.ran is not None for side in sides] == [ran == 0.09] * 4
