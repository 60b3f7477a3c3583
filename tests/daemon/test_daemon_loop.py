"""The daemon's loop continues after any failure in it."""

from __future__ import annotations

import contextlib
import os
import queue
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import SHM
from forge import golden

from brickd.base.paths import runtime
from brickd.daemon import collector
from brickd.daemon.daemon import Daemon
from brickd.daemon.loop import Loop
from brickd.model.event_log import Event
from brickd.state.runtime_dir import Home

LATEST_SECONDS = 30


def eventfds() -> set[int]:
    found = set()
    for each in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the descriptor with which the folder was listed is closed by now
            if os.readlink(each) == "anon_inode:[eventfd]":
                found.add(int(each.name))
    return found


@pytest.fixture
def switch_interval() -> Iterator[None]:
    """Restore the switch interval, which a daemon changes."""
    before = sys.getswitchinterval()
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("prefix", "switch_interval")
def test_an_exception_while_resting_is_reported_once_a_second_and_ends_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    reported: queue.SimpleQueue[Event] = queue.SimpleQueue()
    with Home(runtime()) as home:
        others = eventfds()
        daemon = Daemon(home)
        (wake,) = eventfds() - others
        read = 0

        def queue_defects() -> None:
            nonlocal read
            page = daemon.events.since(read)
            read = page.newest
            for event in page.events:
                if event.kind == "defect":
                    reported.put(event)

        with daemon.events.watched(queue_defects):
            daemon.start()
            try:
                with open("/dev/null", "r+b") as null:
                    os.dup2(null.fileno(), wake, inheritable=False)  # /dev/null is always readable, and empty
                # The loop still waits for the other descriptor, but not longer than the time between two listings.
                first, second = (reported.get(timeout=LATEST_SECONDS) for _ in range(2))
            finally:
                daemon.end()
        assert second.time_ns - first.time_ns > 900_000_000
        assert "Error: [Errno" in first.text  # the number of the error depends on the call that failed first
        assert home.memory(daemon.prefix)[0].closed, "the daemon ended cleanly"
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.usefixtures("prefix")
def test_the_time_since_the_last_tick_is_never_negative(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A reader would treat a recording with a negative time as damaged."""
    now = property(lambda _: time.monotonic_ns(), lambda *_: None)
    monkeypatch.setattr(Loop, "came_round_ns", now, raising=False)
    with Home(runtime()) as home:
        assert Daemon(home).daemon().loop_still_ns >= 0


@pytest.mark.usefixtures("switch_interval")
def test_a_request_does_not_wait_for_a_resting_loop(prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collector, "LOOK_RESTS", 10**9)
    with Home(runtime()) as home:
        daemon = Daemon(home)
        daemon.start()
        try:
            draft = SHM / f".{prefix}0"
            draft.write_bytes(golden())
            draft.rename(SHM / f"{prefix}0")
            daemon._loop.tick()
            assert len(daemon._collector.roster.attached) == 1
        finally:
            daemon.end()
