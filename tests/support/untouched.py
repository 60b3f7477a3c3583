"""Checks that the tests leave the user's own files and segments unchanged; otherwise, the run fails.

Owns: which directories and segments are checked, and what may change there during the run. Must not know: what any test
does. The first process of pytest lists the files before the first test and after the last.

A daemon that holds a runtime directory both before and after the tests belongs to the user. The files of such a daemon,
and the segments with its prefix, are not compared, because they change all the time. The segment of a live worker is
also not compared. If a daemon or a worker of the user starts or ends during the run, its files are reported as changes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from sandbox import SHM, places, within

from brickd.base.files import holder
from brickd.base.paths import Runtime, runtime
from brickd.errors import BrickdError
from brickd.shm import segment_files

_SEGMENT = re.compile(r"[0-9a-f]{32}|removed-[0-9]+")  # the part of a segment's name after the prefix

Seen = Mapping[Path, tuple[int, ...]]
_LIVES = (0,)  # stands for the state of a live file, which changes all the time


@dataclass(frozen=True, slots=True)
class Places:
    """The directories and the segments that an environment names."""

    runtime: Runtime
    prefix: str
    others: tuple[Path, ...] = ()

    @property
    def daemon(self) -> int | None:
        """Return the process that holds the lock of the runtime directory."""
        with suppress(OSError), self.runtime.lock.open("rb") as lock:
            return holder(lock.fileno(), 0)
        return None

    def kept(self) -> Seen:
        """Return the files in the directories, each with its identity, size and time of change."""
        here = (self.runtime.directory, self.runtime.socket, self.runtime.state, *self.others)
        return {path: found for place in here for path, found in _below(place)}

    def segments(self) -> Seen:
        """Return the segments with this prefix."""
        begun = (name for name in os.listdir(SHM) if name.startswith(self.prefix))
        names = (name for name in begun if _SEGMENT.fullmatch(name, len(self.prefix)))
        return {SHM / name: found for name in names for _, found in _below(SHM / name, is_alive=_is_alive(name))}


def _below(path: Path, *, is_alive: bool = False) -> Iterator[tuple[Path, tuple[int, ...]]]:
    try:
        status = path.lstat()
        yield path, _LIVES if is_alive else (status.st_ino, status.st_mode, status.st_size, status.st_mtime_ns)
        inside = [] if path.is_symlink() or not path.is_dir() else list(path.iterdir())
    except OSError:  # the folder does not exist, or this user may not list it
        return
    for each in inside:
        yield from _below(each)


def _is_alive(name: str) -> bool:
    try:
        with segment_files.open_file(name) as file:
            return file.worker() is not None
    except BrickdError:
        return False


def users_places() -> list[Places]:
    """Return the directories and segments that this environment names, and those that are used by default."""
    key = os.environ.get("BRICKD_KEY_FILE")
    named = Places(runtime(), segment_files.prefix(), (Path(key),) if key else ())
    with within({name: value for name, value in places().items() if not name.startswith("BRICKD")}):
        default = Places(runtime(), segment_files.prefix())
    return [named, default]


class Untouched:
    """A pytest plugin that does the check."""

    def __init__(self, watched: Sequence[Places]) -> None:
        self._watched = watched
        self._before = [(each.daemon, each.kept(), each.segments()) for each in watched]
        self.changes: list[str] = []

    def look(self) -> list[str]:
        """Return the changes since the start."""
        changes = []
        for each, (daemon, kept, segments) in zip(self._watched, self._before, strict=True):
            if daemon is not None and daemon == each.daemon:
                continue
            changes += [*_changes(kept, each.kept()), *_changes(segments, each.segments())]
        return sorted(set(changes))

    @pytest.hookimpl(trylast=True)  # last, because the processes that ran the tests have ended by then
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail the run if something has changed."""
        self.changes = self.look()
        if self.changes and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the changes."""
        if self.changes:
            terminalreporter.section("the tests changed files of the user", red=True)
            for line in self.changes:
                terminalreporter.line(line)


def _changes(before: Seen, after: Seen) -> Iterator[str]:
    for path in before.keys() | after.keys():
        was, now = before.get(path), after.get(path)
        if was == now or _LIVES in (was, now):
            continue
        yield f"{path}: {'created' if was is None else 'removed' if now is None else 'changed'}"
