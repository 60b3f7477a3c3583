"""Workers that are slower than their own past: from when on, for how long, and what is other work or a busier host."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import pytest
from slots import Fleet, Made

from brickd.analysis.timing.alarms import Alarm
from brickd.analysis.timing.slower import Slower
from brickd.analysis.timing.worker_series import Host, Life, SlotLook, look
from brickd.base.thresholds import Thresholds
from brickd.model.survey_snapshot import Snapshot
from brickd.model.workers import Survey

MINUTE = 6  # slots
FROM = 10 * MINUTE  # since which a worker is slow
THRESHOLDS = Thresholds().with_({"slower_percent": 30, "slower_over": 300})
NOTHING = Snapshot(0, 0, Survey([], []))

Course = Callable[[int, int], float]


def since(factor: float, worker: int = 1, until: int = 10_000) -> Course:
    """One worker so much slower from ten minutes on."""
    return lambda each, slot: factor if each == worker and FROM <= slot < until else 1.0


@dataclass
class Past:
    """Workers over so many slots.

    Attributes:
        elements: of each call, by worker and slot.
        ran, waited: parts of the time.
    """

    factor: Course
    workers: int = 2
    elements: Course = lambda worker, slot: 0
    ran: Course = lambda worker, slot: 0.1
    waited: Course = lambda worker, slot: 0.01
    category: str = "FFN"
    calls: int = 250
    mean_ns: float = 4e6
    noise: float = 0.01
    thresholds: Thresholds = THRESHOLDS
    uuid: Callable[[int, int], str] = lambda worker, slot: f"uuid {worker}"

    def _elements(self, slot: int, worker: int) -> int:
        return int(self.elements(worker, slot))

    def looks(self, slots: int) -> list[SlotLook]:
        found, chance = [], random.Random(3)
        for number in range(slots):
            elements = partial(self._elements, number)
            made = Made(self.mean_ns, self.calls, self.category, self.factor, elements)
            fleet = Fleet(self.workers, {"gemm": made}, self.noise)
            workers = range(self.workers)
            lives = {f"api/{each}": Life("api", self.uuid(each, number)) for each in workers}
            hosts = {f"api/{each}": Host(1, self.ran(each, number), self.waited(each, number)) for each in workers}
            found.append(look(fleet.slot(number, chance.gauss), lives, hosts))
        return found

    def alarms(self, slots: int) -> list[Sequence[Alarm]]:
        looks: list[SlotLook] = []
        slower = Slower(lambda: looks[-1] if looks else None)
        found: list[Sequence[Alarm]] = [slower.look(NOTHING, self.thresholds)]
        for each in self.looks(slots):
            looks.append(each)
            found.append(slower.look(NOTHING, self.thresholds))
        return found[1:]

    def named(self, slots: int = 20 * MINUTE) -> set[str]:
        return {worker for alarms in self.alarms(slots) for alarm in alarms for worker in alarm.workers}


def test_a_worker_that_becomes_slow_is_named_within_a_minute_and_until_it_is_as_before() -> None:
    alarms = Past(since(2.0, until=FROM + 15 * MINUTE), noise=0.0001).alarms(30 * MINUTE)
    held = [slot for slot, each in enumerate(alarms) if each]
    assert FROM + 3 <= held[0] <= FROM + 5
    assert held == list(range(held[0], held[-1] + 1))
    assert FROM + 15 * MINUTE <= held[-1] + 1 <= FROM + 16 * MINUTE
    (alarm,) = alarms[FROM + 2 * MINUTE]
    assert (alarm.kind, alarm.service, alarm.workers) == ("slower", "api", ("api/1",))
    assert alarm.command == "brickd bricks --by worker --over 60s api"
    assert alarm.text == (
        "api/1 is slower than before: gemm takes 8.0 ms, +100 % over 4.0 ms in 5.0 min and more, costs 100 ms/s"
    )


@pytest.mark.parametrize(("percent", "named"), [(25, False), (36, True)])
def test_it_is_named_from_thirty_percent_on(percent: int, *, named: bool) -> None:
    past = Past(since(1 + percent / 100))
    assert past.named() == ({"api/1"} if named else set())
    assert replace(past, thresholds=THRESHOLDS.with_({"slower_percent": 15})).named() == {"api/1"}


def test_a_past_of_which_most_was_as_slow_names_nobody() -> None:
    def early(worker: int, slot: int) -> float:
        return 2.0 if worker == 1 and slot >= 2 * MINUTE else 1.0

    assert Past(early).named(9 * MINUTE) == set()
    quick = THRESHOLDS.with_({"slower_over": 60})
    assert Past(early, thresholds=quick).named(9 * MINUTE) == {"api/1"}


def test_where_more_than_half_are_slower_it_may_be_other_work_unless_the_elements_say_that_it_is_not() -> None:
    def all_slow(worker: int, slot: int) -> float:
        return since(2.0, worker)(worker, slot)

    assert Past(all_slow).named() == set()
    assert Past(all_slow, workers=1).named() == set()
    assert Past(since(2.0, 0), workers=1).named() == set()
    alike: Course = lambda worker, slot: 100  # noqa: E731
    assert Past(all_slow, elements=alike).named() == {"api/0", "api/1"}
    assert Past(since(2.0, 0), workers=1, elements=alike).named() == {"api/0"}


def test_calls_with_more_elements_are_other_work() -> None:
    def more(factor: float) -> Course:
        return lambda worker, slot: 1_000 * since(factor)(worker, slot)

    assert Past(since(2.0), elements=more(2.0)).named() == set()
    assert Past(since(2.0), elements=more(1.3)).named() == {"api/1"}
    assert Past(since(2.0), elements=more(0.5)).named() == {"api/1"}


def test_a_busier_host_makes_no_worker_slower_and_a_slow_operator_does() -> None:
    busier = since(40)
    waits: Course = lambda worker, slot: 0.01 * busier(worker, slot)  # noqa: E731
    runs: Course = lambda worker, slot: 0.1 * since(2)(worker, slot)  # noqa: E731
    assert Past(since(2.0), calls=20, waited=waits).named() == set()
    assert Past(since(2.0), calls=20, waited=waits, ran=runs).named() == {"api/1"}
    assert Past(since(2.0), calls=20).named() == {"api/1"}


def test_a_collective_and_a_brick_that_costs_nothing_name_nobody() -> None:
    assert Past(since(2.0), category="Collective").named() == set()
    # A hundredth of the time: it is looked at, and what it has more costs less than a thousandth.
    assert Past(since(1.8), mean_ns=44_000, calls=250).named() == set()
    assert Past(since(2.4), mean_ns=44_000, calls=250).named() == {"api/1"}


def test_a_pause_of_a_few_slots_and_a_noisy_past_name_nobody() -> None:
    assert Past(since(5.0, until=FROM + 3)).named() == set()
    assert Past(lambda worker, slot: 2.0 if worker == 1 and slot % 2 else 1.0).named() == set()


def test_a_worker_that_is_started_again_has_no_past() -> None:
    past = Past(since(2.0), uuid=lambda worker, slot: f"uuid {worker} {slot >= FROM}")
    assert past.named() == set()


def test_equal_workers_name_nobody() -> None:
    assert Past(lambda worker, slot: 1.0, workers=8, noise=0.05).named(60 * MINUTE) == set()
