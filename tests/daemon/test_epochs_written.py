"""The daemon writes the same epoch into all workers, so they sample a repeated step at the same times."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest
from conftest import SHM, readings
from epochs import drawn
from faults import Start, until_stopped
from forge import PAGE, golden
from recorded import events
from running import running, until
from verbs import started

from brickd.base.units import SECOND
from brickd.daemon.collector import Collector
from brickd.daemon.epochs import EPOCH_NS, Epochs
from brickd.shm.segment import open_segment
from brickd.state.daemon_state import Memory

PROMPTS = [10**18 + 977 * number for number in range(10)]
# Serves all prompts in each of the requested number of rounds. The position of a checksum is the number of its round.
PROGRAM = f"""
import numpy as np
x = np.ones(4, "f")
position = 0
brick.init()
pause()
while line := os.read(0, 8):
    for position in range(position, position + int(line)):
        for prompt in {PROMPTS}:
            with brick.step(prompt): brick.checksum("mlp", x, position=position)
    position += 1
    pause()
"""
Sample = tuple[int, int]


class Server:
    """A worker that serves all prompts in each round."""

    def __init__(self, start: Start, number: int, rate: str) -> None:
        more = {"BRICKD_SERVICE": "api", "BRICKD_WORKER": str(number), "BRICKD_EVENTS": "65536"}
        self.number, self.process = number, started(start, PROGRAM, BRICKD_FINGERPRINTS=rate, **more)
        self.process.go()
        self._seen = 0
        (self.file,) = [
            each.file for each in readings(os.environ["BRICKD_SHM_PREFIX"]) if each.header["index"] == number
        ]

    @property
    def word(self) -> int:
        with open_segment(self.file) as segment:
            return segment.control()["epoch"]

    def serve(self, rounds: int) -> set[Sample]:
        """Return the sampled rounds and prompts; no daemon drains the worker at the same time."""
        assert self.process.process.stdin is not None
        self.process.process.stdin.write(f"{rounds:08}".encode())
        self.process.process.stdin.flush()
        self.process.paused()
        (of,) = [each for each in readings(os.environ["BRICKD_SHM_PREFIX"]) if each.header["index"] == self.number]
        assert sum(sum(lane["event_dropped"]) for _, lane, _ in of.lanes) == 0
        found = [each for each in events(of) if each["kind"] == "checked" and each["sequence"] > self._seen]
        self._seen = max((each["sequence"] for each in found), default=self._seen)
        return {(each["position"], each["step"]) for each in found}


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now_ns = time.time_ns()

    def __call__(self) -> int:
        return self.now_ns


@contextmanager
def collecting(prefix: str, epochs: Epochs) -> Iterator[Callable[[], None]]:
    """A daemon's loop over all segments; yields its tick."""
    loop, ticks = Collector(Memory(prefix), lambda _: None, lambda *_, **__: None, epochs=epochs, clock=int), count(1)
    loop.look(0)
    try:
        yield lambda: loop.tick(next(ticks) * SECOND) and None
    finally:
        loop.end(next(ticks) * SECOND)


@pytest.mark.ci
def test_a_prompt_repeated_in_each_epoch_is_sampled_in_both_workers_at_once(worker: Start, prefix: str) -> None:
    one, two = (Server(worker, number, "1/16") for number in range(2))
    clock = Clock()
    # begin at a multiple of 64 s, so that each prompt is sampled in one of the next 16 epochs
    clock.now_ns -= clock.now_ns % (64 * SECOND)
    while clock.now_ns // SECOND + 16 < time.time():
        clock.now_ns += 16 * SECOND
    times: list[set[Sample]] = []
    with collecting(prefix, Epochs(SECOND, clock)) as tick:
        for _ in range(16):
            tick()
            assert one.word == two.word != 0
            times.append(one.serve(1))
            assert two.serve(1) == times[-1]
            clock.now_ns += SECOND
    assert sorted(prompt for each in times for _, prompt in each) == PROMPTS
    assert sum(map(bool, times)) > 1, "the prompts are spread over several rounds"


@pytest.mark.ci
def test_at_an_epoch_border_workers_differ_only_while_the_epoch_is_written(worker: Start, prefix: str) -> None:
    # This test acts as if the writes into the two workers were 10 ms apart: in each epoch of 5 s, one of 500 rounds
    # runs between these writes. In a measurement, the writes into 64 workers took 0.05 ms, and 32 ms in the worst case.
    one, two = (Server(worker, number, "1/4") for number in range(2))
    clock = Clock()
    both: list[set[Sample]] = [set(), set()]
    with collecting(prefix, Epochs(SECOND, clock)) as tick:
        for _ in range(4):
            tick()
            both[0] |= one.serve(499)
            both[1] |= two.serve(499)
            both[0] |= one.serve(1)
            clock.now_ns += SECOND
            tick()
            both[1] |= two.serve(1)
    together, any_ = len(both[0] & both[1]), len(both[0] | both[1])
    assert any_ > 4_000
    assert 0.99 < together / any_ < 1


def test_a_new_worker_gets_the_epoch_and_loses_it_when_the_daemon_ends(worker: Start, prefix: str) -> None:
    one = Server(worker, 0, "1/16")
    clock = Clock()
    number, until_second = clock.now_ns // EPOCH_NS, clock.now_ns // EPOCH_NS * 5 + 20
    with collecting(prefix, Epochs(clock=clock)) as tick:
        tick()
        assert one.word == until_second << 32 | number
        with open_segment(one.file, os.O_RDWR) as segment:
            fd, at, _ = segment.epoch_write(0)
            os.pwrite(fd, bytes(8), at)
        two = Server(worker, 1, "1/16")
        until(lambda: tick() or two.word)
        assert (one.word, two.word) == (0, until_second << 32 | number), (
            "the word of the present epoch is not written again"
        )
        clock.now_ns += EPOCH_NS
        tick()
        assert one.word == two.word == (until_second + 5) << 32 | number + 1
    assert one.word == two.word == 0


def test_a_worker_with_an_unwritable_epoch_is_drained(prefix: str) -> None:
    (SHM / f"{prefix}0").write_bytes(golden("1.8"))
    loop = Collector(Memory(prefix), lambda _: None, lambda *_, **__: None, clock=int)
    loop.look(0)
    assert loop.roster.drained()[0].segment.has_epochs
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (PAGE, hard))
    try:
        Epochs().move(loop.roster.drained, changed=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [each.segment.name for each in loop.roster.drained()] == [f"{prefix}0"]
    loop.end(SECOND)


@pytest.mark.parametrize("minor", ["1.0", "1.7"])
def test_a_worker_that_samples_by_step_alone_gets_no_epoch(prefix: str, minor: str) -> None:
    (SHM / f"{prefix}0").write_bytes(golden(minor))
    with open_segment(f"{prefix}0") as segment, collecting(prefix, Epochs()) as tick:
        tick()
        assert segment.control()["epoch"] == 0


@pytest.mark.ci
def test_an_epoch_outlives_a_killed_daemon_and_ends_with_its_successor(worker: Start, prefix: str) -> None:
    one = Server(worker, 0, "1/16")
    before = time.time_ns() // EPOCH_NS
    with running() as daemon:
        number = until(lambda: one.word) & (2**32 - 1)
        assert before <= number <= time.time_ns() // EPOCH_NS
        daemon.kill()
    assert one.word != 0, "the word stays valid for a while"
    with running() as daemon:
        assert until(lambda: one.word) != 0
        daemon.end()
    assert one.word == 0


@contextmanager
def moving(every_ns: int) -> Iterator[subprocess.Popen[bytes]]:
    """Start a daemon in its own process, with short epochs."""
    program = Path(__file__).parent.parent / "support" / "bare_daemon.py"
    with subprocess.Popen([sys.executable, "-P", program, str(every_ns)], stdout=subprocess.DEVNULL) as daemon:
        try:
            yield daemon
        finally:
            daemon.kill()


@pytest.mark.ci
def test_a_running_daemon_has_each_prompt_sampled_in_both_workers(worker: Start, prefix: str) -> None:
    one, two = (Server(worker, number, "1/2") for number in range(2))
    sampled: set[int] = set()
    words = {0}
    with moving(SECOND // 100) as daemon:
        while sampled != set(PROMPTS):
            until(lambda: one.word not in words and one.word == two.word)
            daemon.send_signal(signal.SIGSTOP)  # stop the daemon, so that no round has two epochs
            until_stopped(daemon.pid)
            if one.word == two.word:
                words.add(one.word)
                sampled |= (samples := {prompt for _, prompt in one.serve(1)})
                assert samples == {prompt for _, prompt in two.serve(1)}
                assert samples == {prompt for prompt in PROMPTS if drawn(prompt, 2, one.word % 2**32)}
            daemon.send_signal(signal.SIGCONT)
            assert len(words) < 40
