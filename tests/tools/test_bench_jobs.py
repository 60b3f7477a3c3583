"""Calls of benchmarks that run at the same time: their results, and their end when the program gets a signal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import closing
from functools import partial

import pytest
from benchmarks.jobs import in_processes
from conftest import ROOT

# Each call starts a process, prints the PID of this process, and waits. It must end this process in any case.
PROGRAM = """
import os, signal, subprocess
from benchmarks.jobs import end_once, in_processes
signal.signal(signal.SIGTERM, end_once)
def call():
    with subprocess.Popen(["sleep", "600"], process_group=0) as started:
        try:
            os.write(1, b"begun\\n")
            signal.pause()
        finally:
            signal.raise_signal(signal.SIGTERM) # a second signal, which must not interrupt this
            started.kill()
            os.write(1, b"ended\\n")
for result in in_processes([call] * 5, 2):
    pass
"""


@pytest.mark.parametrize(
    ("number", "whole_group"),
    [
        (signal.SIGTERM, False),
        pytest.param(signal.SIGTERM, True, marks=pytest.mark.ci),
        pytest.param(signal.SIGINT, True, marks=pytest.mark.ci),
    ],
)
def test_a_signal_ends_running_calls_and_what_they_started_and_begins_no_other(number: int, whole_group: bool) -> None:
    path = os.pathsep.join([str(ROOT / "scripts"), os.environ.get("PYTHONPATH", "")])
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env=os.environ | {"PYTHONPATH": path},
    ) as program:
        try:
            assert program.stdout is not None
            assert [program.stdout.readline() for _ in range(2)] == [b"begun\n"] * 2
            (os.killpg if whole_group else os.kill)(program.pid, number)
            # The output ends when the last process ends, also those that the calls started.
            assert program.stdout.read() == b"ended\n" * 2
            assert program.wait() == (-number if number == signal.SIGINT else 128 + number)
        finally:
            program.kill()


def fails() -> int:
    raise ValueError


@pytest.mark.ci
def test_each_call_gives_its_result_and_one_that_fails_ends_the_others() -> None:
    with closing(in_processes([partial(abs, -number) for number in range(9)], 3)) as found:
        assert sorted(found) == list(range(9))
    with (
        pytest.raises(RuntimeError, match="a job ended with exit status 1"),
        closing(in_processes([fails, signal.pause], 2)) as found,
    ):
        list(found)
