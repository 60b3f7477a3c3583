"""The resource use of a worker is either that of its own process, or unknown."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from made_up_workers import MadeUp

from brickd.base.cpu_sharing import only_cpu
from brickd.daemon.process_usage import Usages
from brickd.model.workers import Survey, Usage, Worker
from brickd.shm.ledger import ledger_of

SECOND = 10**9


def survey(*pids: int | None) -> Survey:
    """Return the workers of these processes."""
    workers = []
    for number, pid in enumerate(pids):
        reading = MadeUp().reading()
        header: Any = {**reading.header, "uuid": bytes([number]) * 16}
        reading = replace(reading, header=header, pid=pid)
        workers.append(Worker(f"made/{number}", reading, ledger_of(reading)))
    return Survey(workers, [])


def found(usages: Usages, of: Survey) -> list[Usage | None]:
    return [worker.usage for worker in usages.laid_over(of).workers]


@pytest.mark.ci
def test_processor_time_is_measured_between_two_looks() -> None:
    usages, here = Usages(), survey(os.getpid())
    before = psutil.Process().cpu_times()
    usages.look(here, 0)
    (first,) = found(usages, here)
    assert first is not None
    assert first.cpu_percent is None
    while sum(psutil.Process().cpu_times()[:2]) < sum(before[:2]) + 0.05:
        pass
    usages.look(here, 10 * SECOND)
    took = sum(psutil.Process().cpu_times()[:2]) - sum(before[:2])
    (second,) = found(usages, here)
    assert second is not None
    assert second.cpu_percent is not None
    assert 0.2 <= second.cpu_percent <= 100 * took / 10 + 0.01


def test_single_processor_and_throttling_are_shown(tmp_path: Path) -> None:
    usages, here, group = Usages(tmp_path), survey(os.getpid()), tmp_path / "sys/fs/cgroup/a"
    (tmp_path / f"proc/{os.getpid()}").mkdir(parents=True)
    (tmp_path / f"proc/{os.getpid()}/cgroup").write_text("0::/a\n")
    group.mkdir(parents=True)
    parts = []
    for number, throttled_usec in enumerate([7_000_000, 10_000_000, 90_000_000, 1]):
        (group / "cpu.stat").write_text(f"throttled_usec {throttled_usec}\n")
        usages.look(here, 10 * number * SECOND)
        (usage,) = found(usages, here)
        assert usage is not None
        parts.append(usage.throttled)
        assert usage.cpu == only_cpu(os.getpid())
    assert parts == [None, 0.3, 1.0, 0.0]
    (group / "cpu.stat").unlink()
    usages.look(here, 40 * SECOND)
    assert [each and each.throttled for each in found(usages, here)] == [None]


def test_an_invisible_process_has_no_usage() -> None:
    usages, here = Usages(), survey(0, None)
    usages.look(here, 0)
    assert found(usages, here) == [None, None]


def test_an_ended_process_has_no_usage() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    usages, here = Usages(), survey(child.pid, os.getpid())
    usages.look(here, 0)
    assert None not in found(usages, here)
    child.communicate(b"\n")
    usages.look(here, SECOND)
    gone, alive = found(usages, here)
    assert gone is None
    assert alive is not None


def test_a_worker_that_died_since_the_last_look_has_no_usage() -> None:
    usages = Usages()
    usages.look(survey(os.getpid()), 0)
    assert found(usages, survey(None)) == [None]


def test_another_worker_in_the_same_process_starts_again() -> None:
    usages, here = Usages(), survey(os.getpid(), os.getpid())
    usages.look(Survey(here.workers[:1], []), 0)
    usages.look(Survey(here.workers[1:], []), SECOND)
    first, second = found(usages, here)
    assert first is None
    assert second is not None
    assert second.cpu_percent is None
