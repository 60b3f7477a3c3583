"""The event log numbers its events without gaps, has a limited size, and can be read while it is being written."""

from __future__ import annotations

import contextlib
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brickd.base.units import SECOND
from brickd.model.event_log import Event, Log, Page, since
from brickd.recording.file_index import RecordedEvents


def filled(events: int, *, newest: int = 0, kept: int = 5) -> Log:
    log = Log(newest, kept)
    for number in range(events):
        log.add("tried", f"the {number}th", worker="api/0")
    return log


@given(st.integers(0, 12), st.integers(0, 9), st.integers(0, 30))
def test_missed_events_plus_read_events_are_all_events(events: int, before: int, since: int) -> None:
    page = filled(events, newest=before).since(since)
    numbers = [event.number for event in page.events]
    assert page.newest == before + events
    assert numbers == list(range(page.newest - len(numbers) + 1, page.newest + 1))
    assert page.missed + len(numbers) == max(0, page.newest - since)
    assert len(numbers) == min(5, events, max(0, page.newest - since))


@pytest.mark.parametrize(
    ("begin", "numbers", "missed"),
    [(0, [2, 3], 1), (2, [3], 0), (10.0, [3], 0), (20.0, [2, 3], 1), (19.9, [3], 0), (100.0, [2, 3], 1)],
)
def test_the_events_of_a_duration_are_returned(begin: int | float, numbers: list[int], missed: int) -> None:
    recorded = RecordedEvents(kept=2)
    for number, seconds in ((1, 70), (2, 80), (3, 100)):
        recorded.add(Event(number, seconds * SECOND, "tried", ""))
    page = since(recorded, begin)
    assert ([event.number for event in page.events], page.missed, page.newest) == (numbers, missed, 3)


def test_a_recording_without_events_has_none_of_a_duration() -> None:
    assert since(RecordedEvents(), 5.0) == Page((), 0, 0)


def test_an_event_has_its_time_kind_and_workers() -> None:
    event = Log().add("worker_died", "api/3 died", service="api", worker="api/3", command="brickd inspect api/3")
    document = event.document()
    assert document.pop("time").endswith("Z")
    assert document == {
        "number": 1,
        "kind": "worker_died",
        "service": "api",
        "worker": "api/3",
        "text": "api/3 died",
        "command": "brickd inspect api/3",
        "problem": None,
    }


def test_a_watcher_is_woken_by_each_event_only_while_it_watches() -> None:
    log, woken = Log(), []
    with log.watched(lambda: woken.append(log.since(0).newest)):
        log.add("one", "")
        log.add("two", "")
    log.add("three", "")
    assert woken == [1, 2]


def test_many_readers_see_every_event_once_while_one_thread_adds() -> None:
    log, reported = Log(), [list[int]() for _ in range(3)]
    woken = [threading.Event() for _ in reported]

    def read(seen: list[int], wake: threading.Event) -> None:
        while len(seen) < 500:
            wake.wait()
            wake.clear()
            page = log.since(seen[-1] if seen else 0)
            assert page.missed == 0
            seen.extend(event.number for event in page.events)

    readers = [threading.Thread(target=read, args=each) for each in zip(reported, woken, strict=True)]
    with contextlib.ExitStack() as watching:
        for wake in woken:
            watching.enter_context(log.watched(wake.set))
        for reader in readers:
            reader.start()
        for _ in range(500):
            log.add("tick", "")
        for reader in readers:
            reader.join()
    assert reported == [list(range(1, 501))] * 3
