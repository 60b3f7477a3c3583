"""A check that the tests leave the user's own places as they were; a run that changed one fails.

Owns: which places these are, and what may change there meanwhile. Must not know: what any test does. Places are listed
before the first test and after the last one, by the process that distributes the tests.

A daemon that held its runtime directory at both times is the user's: the tests cannot have had that directory. What it
writes, and what becomes of segments with its prefix, cannot be told from what a test did, and is not compared. The same
is true of the segment of a worker that lives. Not told apart either, and reported: what a daemon or a worker of the
user's leaves behind that began or ended during the run.
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

from brickd.base.locks import holder
from brickd.base.paths import Runtime, runtime
from brickd.errors import BrickdError
from brickd.shm import segment_files

_SEGMENT = re.compile(r"[0-9a-f]{32}|removed-[0-9]+")  # behind a prefix; a longer prefix is another one

Seen = Mapping[Path, tuple[int, ...]]
_LIVES = (0,)  # in place of what changes all the time


@dataclass(frozen=True, slots=True)
class Places:
    """Where one environment has the daemon, its state, and segments."""

    runtime: Runtime
    prefix: str
    others: tuple[Path, ...] = ()

    @property
    def daemon(self) -> int | None:
        """The process that holds the runtime directory."""
        with suppress(OSError), self.runtime.lock.open("rb") as lock:
            return holder(lock.fileno(), 0)
        return None

    def kept(self) -> Seen:
        """What is in the directories: of each file which one it is, how large, and when it changed."""
        here = (self.runtime.directory, self.runtime.socket, self.runtime.state, *self.others)
        return {path: found for place in here for path, found in _below(place)}

    def segments(self) -> Seen:
        """The segments of these workers."""
        begun = (name for name in os.listdir(SHM) if name.startswith(self.prefix))
        names = (name for name in begun if _SEGMENT.fullmatch(name, len(self.prefix)))
        return {SHM / name: found for name in names for _, found in _below(SHM / name, is_alive=_is_alive(name))}


def _below(path: Path, *, is_alive: bool = False) -> Iterator[tuple[Path, tuple[int, ...]]]:
    try:
        status = path.lstat()
        yield path, _LIVES if is_alive else (status.st_ino, status.st_mode, status.st_size, status.st_mtime_ns)
        inside = [] if path.is_symlink() or not path.is_dir() else list(path.iterdir())
    except OSError:  # it is not there, or not ours to see
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
    """The places that this environment names, and those that it would have without naming any."""
    key = os.environ.get("BRICKD_KEY_FILE")
    named = Places(runtime(), segment_files.prefix(), (Path(key),) if key else ())
    with within({name: value for name, value in places().items() if not name.startswith("BRICKD")}):
        default = Places(runtime(), segment_files.prefix())
    return [named, default]


class Untouched:
    """The check, as a plugin of pytest."""

    def __init__(self, watched: Sequence[Places]) -> None:
        self._watched = watched
        self._before = [(each.daemon, each.kept(), each.segments()) for each in watched]
        self.changes: list[str] = []

    def look(self) -> list[str]:
        """What changed since then."""
        changes = []
        for each, (daemon, kept, segments) in zip(self._watched, self._before, strict=True):
            if daemon is not None and daemon == each.daemon:
                continue
            changes += [*_changes(kept, each.kept()), *_changes(segments, each.segments())]
        return sorted(set(changes))

    @pytest.hookimpl(trylast=True)  # the processes of xdist have ended by then
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Have the run fail."""
        self.changes = self.look()
        if self.changes and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say why."""
        if self.changes:
            terminalreporter.section("the tests touched what is not theirs", red=True)
            for line in self.changes:
                terminalreporter.line(line)


def _changes(before: Seen, after: Seen) -> Iterator[str]:
    for path in before.keys() | after.keys():
        was, now = before.get(path), after.get(path)
        if was == now or _LIVES in (was, now):
            continue
        yield f"{path}: {'created' if was is None else 'removed' if now is None else 'changed'}"
