"""Runs the tests in several processes: `--processes N`.

Owns: which process runs which test, and how its results come back. Must not know: what a test does.

The parent collects all tests once, forks the processes, hands out chunks of tests and reports the results. The parent
runs no test itself, so it can fork at any time, for example to replace a process that crashed. A process requests the
next chunk before it runs its last test: to tear down a test, pytest must know which test comes next.

If a test file computes a value when it is imported, all processes get the same value. Such a value cannot be a unique
name.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
from _pytest.unraisableexception import collect_unraisable

CHUNK = 16  # the most tests of one file that a process gets at a time
_PATIENCE_SECONDS = 30.0  # the time that a stopped process gets to end its fixtures
_MORE = "more"  # the message by which a process asks for more tests, in place of results

# the type of the results of a test: its reports and its warnings
_Results = tuple[list[dict[str, Any]], list[dict[str, Any]]]


@dataclass
class _Process:
    """A process that runs tests; `held` has the tests that the process got and has not finished."""

    pid: int
    connection: Connection
    pidfd: int
    held: deque[int] = field(default_factory=deque)

    def end(self) -> str:
        """Wait for the end of the process; return how it ended."""
        self.connection.close()
        os.close(self.pidfd)
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return f"exit status {code}" if code >= 0 else signal.Signals(-code).name


class ForkedTests:
    """The plugin of the parent.

    Args:
        count: the number of processes.
        around: entered by each process before its first test, and left after its last one.
    """

    def __init__(self, count: int, around: Callable[[], AbstractContextManager[object]]) -> None:
        self._count, self._around = count, around
        self._running: list[_Process] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Run all tests; pytest itself reports errors of the collection."""
        options = session.config.option
        if options.collectonly or (session.testsfailed and not options.continue_on_collection_errors):
            return None
        chunks = deque[Sequence[int]](chunks_of(session.items))
        # One folder for the temporary files of all processes; pytest keeps such folders of the last three runs.
        session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
        reporter = session.config.pluginmanager.getplugin("terminalreporter")
        if reporter is not None:
            # do not print the names of files, because tests of several files run at the same time
            reporter.showfspath = False
        try:
            while True:
                while chunks and len(self._running) < self._count:
                    self._fork(session, chunks.popleft())
                if not self._running:
                    return True
                ready = wait([each.connection for each in self._running] + [each.pidfd for each in self._running])
                for each in [*self._running]:
                    if each.connection in ready:
                        self._receive(session, each, chunks)
                    elif each.pidfd in ready:
                        self._bury(session, each, chunks)
                if session.shouldfail:
                    raise session.Failed(session.shouldfail)
                if session.shouldstop:
                    raise session.Interrupted(session.shouldstop)
        finally:
            self._stop()

    def _fork(self, session: pytest.Session, chunk: Sequence[int]) -> None:
        ours, its = Pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        # Python ignores an interrupt that comes while it runs its hooks for fork, so the interrupt has to wait.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            pid = os.fork()
            if pid == 0:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
                ours.close()
                for other in self._running:
                    other.connection.close()
                    os.close(other.pidfd)
                _become(session, its, self._around)
            its.close()
            self._running.append(_Process(pid, ours, os.pidfd_open(pid), deque(chunk)))
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        ours.send(chunk)

    def _receive(self, session: pytest.Session, process: _Process, chunks: deque[Sequence[int]]) -> None:
        """Report what a process has sent: results, a request for more tests, or an error."""
        try:
            received: _Results | str = process.connection.recv()
        except (EOFError, OSError):
            self._bury(session, process, chunks)
            return
        if received == _MORE:
            chunk = chunks.popleft() if chunks else ()
            process.held.extend(chunk)
            with suppress(BrokenPipeError):
                process.connection.send(chunk)
        elif isinstance(received, str):
            session.shouldfail = received
        else:
            hook = session.config.hook
            for warning in received[1]:
                hook.pytest_warning_recorded.call_historic(kwargs=warning)
            loaded = [hook.pytest_report_from_serializable(config=session.config, data=each) for each in received[0]]
            _report(session.items[process.held.popleft()], loaded)

    def _bury(self, session: pytest.Session, process: _Process, chunks: deque[Sequence[int]]) -> None:
        """Report the test that crashed its process; give the other tests of this process to another process."""
        self._running.remove(process)
        ended = process.end()
        if process.held:
            item = session.items[process.held.popleft()]
            text = f"the process that ran this test crashed: {ended}"
            _report(item, [pytest.TestReport(item.nodeid, item.location, {}, "failed", text, "call")])
            if process.held:
                chunks.appendleft(tuple(process.held))
        elif ended != "exit status 0":
            session.shouldfail = f"a process of the tests crashed after its last test: {ended}"

    def _stop(self) -> None:
        """Let each process finish its test and its fixtures; kill the processes that do not."""
        for each in self._running:
            with suppress(OSError):
                each.connection.send(())
        until = time.monotonic() + _PATIENCE_SECONDS
        while self._running:
            ready = wait([each.pidfd for each in self._running], 0.05)
            for each in [*self._running]:
                with suppress(EOFError, OSError):
                    while each.connection.poll():
                        each.connection.recv()  # receive the message: otherwise, the process would wait
                if time.monotonic() > until:
                    os.kill(each.pid, signal.SIGKILL)
                if each.pidfd in ready:
                    self._running.remove(each)
                    each.end()


def chunks_of(items: Sequence[pytest.Item]) -> Iterator[tuple[int, ...]]:
    """Yield the indexes of successive tests of one file, at most `CHUNK` at a time."""
    chunk: list[int] = []
    for number, item in enumerate(items):
        if chunk and (len(chunk) == CHUNK or item.path != items[chunk[0]].path):
            yield tuple(chunk)
            chunk = []
        chunk.append(number)
    if chunk:
        yield tuple(chunk)


def _report(item: pytest.Item, reports: Sequence[pytest.TestReport]) -> None:
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)


class _Collected:
    """The plugin of a process: keeps the results of a test until they are sent."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self.results: _Results = [], []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.results[0].append(self._config.hook.pytest_report_to_serializable(config=self._config, report=report))

    def pytest_warning_recorded(
        self,
        warning_message: warnings.WarningMessage,
        when: str,
        nodeid: str,
        location: tuple[str, int, str] | None,
    ) -> None:
        warning_message.source = None  # the source of a warning may be any object, which cannot be sent
        self.results[1].append(
            {"warning_message": warning_message, "when": when, "nodeid": nodeid, "location": location}
        )


def _become(
    session: pytest.Session, connection: Connection, around: Callable[[], AbstractContextManager[object]]
) -> NoReturn:
    """Run tests in this process until there are no more, or the parent stops it or ends."""
    code = 1
    try:
        config = session.config
        terminal = config.get_terminal_writer()
        config.pluginmanager.unregister(name="terminalreporter")
        # The parent reports the results. A test that reaches its timeout still writes its stacks to the terminal.
        config.pluginmanager.register(SimpleNamespace(_tw=terminal), "terminalreporter")
        capture = config.pluginmanager.getplugin("capturemanager")
        capture.stop_global_capturing()  # do not write into the parent's capture files
        capture.start_global_capturing()
        capture.suspend_global_capture()
        with around():
            try:
                with suppress(EOFError, OSError):  # these errors mean that the parent has ended
                    _run(session, connection)
            finally:
                session._setupstate.teardown_exact(None)
            gc.collect()
            collect_unraisable(config)
        code = 0
    except KeyboardInterrupt:
        code = 130
    except BaseException:
        with suppress(OSError):
            connection.send(f"a process of the tests failed:\n{traceback.format_exc()}")
    finally:
        os._exit(code)


def _run(session: pytest.Session, connection: Connection) -> None:
    """Run the tests that the parent hands out."""
    hook, collected = session.config.hook, _Collected(session.config)
    session.config.pluginmanager.register(collected)
    collected.results = [], []  # drop the warnings of the collection, which the parent reports
    held, more = deque[int](connection.recv()), True
    while held:
        if len(held) == 1 and more:
            connection.send(_MORE)
            chunk = connection.recv()
            held.extend(chunk)
            more = bool(chunk)
        item, following = session.items[held.popleft()], session.items[held[0]] if held else None
        hook.pytest_runtest_protocol(item=item, nextitem=following)
        connection.send(collected.results)
        collected.results = [], []
        if session.shouldfail or session.shouldstop or connection.poll():
            return
