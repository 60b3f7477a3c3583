"""Calls that run at the same time, each in its own process.

Owns: the processes, and their end when this program is interrupted. Must not know: what is called. Invariants: a
process runs one call, so it begins no other call after it is interrupted; when the caller stops, all processes have
ended, and each had time to end what it started.
"""

from __future__ import annotations

import signal
import sys
from collections import deque
from collections.abc import Callable, Generator, Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import NoReturn, TypeVar

_Result = TypeVar("_Result")
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def end_once(number: int, _: object) -> NoReturn:
    """Handle a signal: end this process and what it started.

    Further signals would interrupt this, so they are ignored. Processes that start from now on do not ignore them.
    """
    for each in _SIGNALS:
        signal.signal(each, lambda *_: None)
    sys.exit(128 + number)


def in_processes(calls: Sequence[Callable[[], _Result]], jobs: int) -> Generator[_Result]:
    """Run the calls, `jobs` at a time; yield their results as they come.

    Close the iterator if you stop before its end, so that its processes end.

    Raises:
        RuntimeError: a process ended without a result.
    """
    waiting, running = deque(calls), dict[Connection, BaseProcess]()
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                _start(waiting.popleft(), running)
            for connection in [each for each in wait([*running]) if isinstance(each, Connection)]:
                try:
                    result: _Result = connection.recv()
                except EOFError:
                    running[connection].join()
                    raise RuntimeError(f"a job ended with exit status {running[connection].exitcode}") from None
                running.pop(connection).join()
                connection.close()
                yield result
    finally:
        for process in running.values():
            process.terminate()
        for process in running.values():
            process.join()


def _start(call: Callable[[], object], running: dict[Connection, BaseProcess]) -> None:
    ours, theirs = get_context("fork").Pipe(duplex=False)
    process = get_context("fork").Process(target=_run, args=(call, theirs))
    # A signal that came between the fork and the entry in `running` would leave this process running.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        process.start()
        running[ours] = process
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    theirs.close()


def _run(call: Callable[[], object], results: Connection) -> None:
    for each in _SIGNALS:
        signal.signal(each, end_once)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    results.send(call())
