"""The daemon of a run: a real `brickd up` that is queried with verbs and measured from outside."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.fleet import SERVICE
from benchmarks.workplace import Workplace

_PATIENCE_SECONDS = 60
_LOOK_SECONDS = 0.001
_RESTED_NS = 100_000  # a thread that used less processor time than this in a sample has paused


class Running:
    """A running daemon. `said` is the first line that it printed."""

    def __init__(self, place: Workplace, process: subprocess.Popen[bytes], said: str) -> None:
        self._place, self._started, self.said = place, process, said
        self._process = Path("/proc") / str(process.pid)

    def end(self) -> None:
        """Stop the process, and wait until it has ended."""
        self._started.terminate()
        self._started.wait()

    def _ask(self, *arguments: str, ends: tuple[int, ...] = (0,)) -> Any:
        return json.loads(self._place.python("-m", "brickd", *arguments, "--json", ends=ends).stdout)

    def status(self) -> Any:
        """Return the answer of `brickd status`."""
        return self._ask("status")

    def stragglers(self) -> list[dict[str, Any]]:
        """Return the slow workers, from `brickd stragglers`."""
        found: list[dict[str, Any]] = self._ask("stragglers", ends=(0, 1))["stragglers"]
        return found

    def named(self) -> list[tuple[str, str, str]]:
        """Return service, worker and brick of each slow worker; the brick is empty if the worker waits for a
        processor."""
        document = self._ask("stragglers", ends=(0, 1))
        found = [(each["service"], each["worker"], each["brick"]) for each in document["stragglers"]]
        return found + [(each["service"], each["worker"], "") for each in document["waiting"]]

    def drains(self, workers: int, *, spans: bool = False) -> None:
        """Wait until the daemon drains all workers and has turned span detail on or off in each."""

        def reached() -> bool:
            if not self.status()["workers"]:
                return False  # until the daemon has found a worker, `brickd set` does not know the service
            return bool(self._ask("set", SERVICE, "--spans", "on" if spans else "off")["workers"] == workers)

        self.until(reached, f"{workers} workers are not drained")

    def settled(self) -> Any:
        """Wait until all workers have ended and all data is read, and return the status."""
        found: list[Any] = []

        def reached() -> bool:
            found[:] = [self.status()]
            ledger = found[0]["ledger"]
            waits = ledger["details"]["in_ring"] + ledger["events"]["in_ring"]
            return waits == 0 and all(worker["state"] != "live" for worker in found[0]["workers"])

        self.until(reached, "workers have not ended")
        return found[0]

    @staticmethod
    def until(reached: Callable[[], bool], problem: str) -> None:
        """Call `reached` again and again until it returns true.

        Raises:
            RuntimeError: `reached` still returned false after a long time. The message begins with `problem`.
        """
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not reached():
            if time.monotonic() > deadline:
                raise RuntimeError(f"{problem}, after {_PATIENCE_SECONDS} s")
            time.sleep(0.1)

    def processor_ns(self) -> Mapping[str, int]:
        """Return the processor time of each of the daemon's threads so far, including kernel time."""
        return {
            thread.name: int((thread / "schedstat").read_text().split()[0])
            for thread in (self._process / "task").iterdir()
        }

    def shares(self, windows: int, seconds: float) -> list[float]:
        """Return the daemon's share of one core in each of `windows` windows."""
        found = []
        for _ in range(windows):
            began, before = time.monotonic_ns(), self.processor_ns()
            time.sleep(seconds)
            spent = sum(ns - before.get(thread, 0) for thread, ns in self.processor_ns().items())
            found.append(spent / (time.monotonic_ns() - began))
        return found

    def longest_ns(self, seconds: float) -> int:
        """Return the longest time that a thread worked without a pause, sampled each millisecond."""
        longest, stretch = 0, Counter[str]()
        before = self.processor_ns()
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            time.sleep(_LOOK_SECONDS)
            after = self.processor_ns()
            for thread, ns in after.items():
                worked = ns - before.get(thread, 0)
                stretch[thread] = stretch[thread] + worked if worked > _RESTED_NS else 0
                longest = max(longest, stretch[thread])
            before = after
        return longest

    def resident_bytes(self) -> int:
        """Return the resident memory of the process."""
        lines = (self._process / "status").read_text().splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmRSS:"))

    def checkpoint_bytes(self) -> int:
        return (self._place.runtime / "checkpoint").stat().st_size


@contextmanager
def running(place: Workplace, *options: str) -> Iterator[Running]:
    """Start a daemon, and yield it when it answers; then end it, and remove its segments and its state."""
    process = subprocess.Popen(
        [sys.executable, "-m", "brickd", "up", *options],
        env=place.environment,
        cwd=place.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdout is not None
    with process:
        try:
            said = process.stdout.readline().decode()
            if "the daemon runs" not in said:
                raise RuntimeError("brickd up did not start")
            yield Running(place, process, said)
        finally:
            process.terminate()
            process.wait()
            place.remove_segments()
            shutil.rmtree(place.runtime, ignore_errors=True)
