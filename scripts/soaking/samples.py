"""Checks during a run that none of brickd's counters decreases, that no worker is missing, and that all accounts agree.

The account of a worker is read twice: before the query for the lower bound, and after the query for the upper bound.
The answer must always be between these bounds, for live and dead workers, with a daemon or without.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

from soaking.account import Bounds
from soaking.counters import Counters
from soaking.daemon import Daemon, Weight
from soaking.population import Life, Population

# A daemon logs these events only after failures that do not happen in this run.
_UNWANTED = (
    "blind",
    "break",
    "checkpoint_failed",
    "defect",
    "quarantined",
    "restored",
    "starved",
    "worker_missed",
    "worker_returned",
)


@dataclass(frozen=True)
class Sample:
    """brickd's numbers at one time.

    Attributes:
        at_s: the time on the clock of the run.
        life: the number of the daemon; None if no daemon answered.
        weight: the memory and files of the daemon; None if no daemon ran.
        settled: whether no worker is live, and nothing is left to read or remove.
    """

    at_s: float
    life: int | None
    weight: Weight | None
    settled: bool


class Samples:
    """All samples.

    Attributes:
        first: the first daemon's memory and files before the first worker.
        falls: how often a counter decreased.
        problems: everything that must not happen, including falls.
        worker_checks: how often a worker's account was compared.
        ends_at_s: no worker starts after this time.
    """

    def __init__(self) -> None:
        self.first: Weight | None = None
        self.all: list[Sample] = []
        self.falls = 0
        self.problems: list[str] = []
        self.worker_checks = 0
        self.ends_at_s = float("inf")
        self._compared: set[str] = set()  # the segments of compared workers that had ended
        self.status: Any = None
        self._counters = Counters()
        self._newest_event = 0
        self._began_s = time.monotonic()

    @property
    def workers_compared(self) -> int:
        """Return the number of workers whose account was compared after their end."""
        return len(self._compared)

    @property
    def now_s(self) -> float:
        """Return the time on the clock of the run."""
        return time.monotonic() - self._began_s

    def take(self, population: Population, daemon: Daemon) -> Sample:
        """Take a sample."""
        low = {life.segment: life.read("spans").low for life in population.living}
        status = self.status = daemon.ask("status", "--over", "start")
        answered = status["source"] == "daemon"
        self._compare(status, population.born, low)
        for text in self._counters.fallen(status, daemon.life if answered else None):
            self.falls += 1
            self._problem(text)
        if answered:
            self._read_events(daemon)
        weight = daemon.weighed()
        sample = Sample(self.now_s, daemon.life if answered else None, weight, _settled(status, weight))
        self.all.append(sample)
        return sample

    def _problem(self, text: str) -> None:
        self.problems.append(f"after {self.now_s:.1f} s: {text}")

    # ---- each worker

    def _compare(self, status: Any, born: dict[str, Life], low: dict[str, int]) -> None:
        entries = status["workers"]
        for name, times in Counter(entry["name"] for entry in entries).items():
            if times > 1:
                self._problem(f"{times} workers are called {name}, expected 1")
        by_segment = {entry["segment"]: entry for entry in entries if entry["together"] == 1}
        for segment in low:
            if segment not in by_segment and born[segment].state == "lives":
                self._problem(f"worker {born[segment].plan.number} is alive but missing")
        for segment, entry in by_segment.items():
            life = born.get(segment)
            if entry["state"] == "quarantined":
                self._problem(f"{segment} is quarantined: {entry['problem']}")
            elif life is not None:
                self._compare_one(life, entry, low.get(segment))

    def _compare_one(self, life: Life, entry: Any, low: int | None) -> None:
        self.worker_checks += 1
        ledger = entry["ledger"]
        spans, bounds = ledger["spans"], life.read("spans")
        found = {"spans": (spans["begun"] + spans["no_lane"], Bounds(bounds.low if low is None else low, bounds.high))}
        if life.done is not None and not (ledger["events"]["in_ring"] or ledger["deferred"]["pending"]):
            self._compared.add(life.segment)
            starts = ledger["deferred"]["started"] + ledger["deferred"]["refused"]
            found["starts"] = (starts + ledger["events"]["dropped"].get("defer", 0), life.read("defer"))
        who = f"{entry['name']} ({entry['state']}, worker {life.plan.number}, {life.state})"
        for what, (n, wanted) in found.items():
            if wanted.off(n):
                self._problem(f"{who}: {n:,} {what}, expected {wanted.low:,} to {wanted.high:,}")
        if life.state == "lives" and entry["state"] != "live":
            self._problem(f"{who} lives{', stopped' if life.stopped else ''}")

    # ---- reports of the daemon

    def _read_events(self, daemon: Daemon) -> None:
        page = daemon.ask("events", "--since", str(self._newest_event))
        self._newest_event = page["newest"]
        for event in page["events"]:
            if event["kind"] in _UNWANTED:
                self._problem(f"the daemon reports: {event['text']}")


def _settled(status: Any, weight: Weight | None) -> bool:
    ledger = status["ledger"]
    waits = ledger["details"]["in_ring"] + ledger["events"]["in_ring"] + ledger["deferred"]["pending"]
    live = any(entry["state"] == "live" for entry in status["workers"])
    return weight is not None and not (waits or live or weight.shm_files)
