"""Gives the tests their own directories and prefixes, so that no test sees or changes the user's data.

Owns: the environment of a test, and of processes that several tests share. Must not know: what a test does. Invariant:
no prefix of a test begins with the default prefix, because the user's daemon would drain the workers of the tests.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

SHM = Path("/dev/shm")
PREFIX = "test-brickd-"
# The variables from which brickd derives its default directories. HOME is kept, because some tests use compilers in the
# user's home; XDG_STATE_HOME takes precedence over HOME.
_DEFAULTS = ("XDG_RUNTIME_DIR", "XDG_STATE_HOME")


def places() -> dict[str, str]:
    """Return the variables that name directories or prefixes, or that change what brickd does."""
    return {name: value for name, value in os.environ.items() if name.startswith("BRICKD") or name in _DEFAULTS}


@contextmanager
def within(variables: Mapping[str, str]) -> Iterator[None]:
    """Replace the current `places` with these variables."""
    with pytest.MonkeyPatch.context() as patch:
        for name in places():
            patch.delenv(name)
        for name, value in variables.items():
            patch.setenv(name, value)
        yield


def started_in(prefix: str) -> Iterator[int]:
    """Return the processes whose environment has this prefix, or a prefix that begins with it."""
    entry = b"\0BRICKD_SHM_PREFIX=" + prefix.encode()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if entry in b"\0" + (process / "environ").read_bytes():
                yield int(process.name)


@dataclass(frozen=True, slots=True)
class _Place:
    """A prefix, its directory, and the original state of the directory."""

    prefix: str
    folder: Path
    made: tuple[object, ...]


# Most tests leave their directories unchanged. These directories are used again, because making and removing them takes
# longer than such a test.
_unused: list[_Place] = []


def _state(folder: Path) -> tuple[object, ...]:
    """Return a value that changes if the directories or their contents change."""
    found = [(each, os.stat(each)) for each in (folder, folder / "run")]
    return tuple((s.st_ino, s.st_mode, s.st_uid, s.st_gid, s.st_ctime_ns, *os.listdir(path)) for path, s in found)


def _new_place() -> _Place:
    # a short name, because the path of a socket has at most 107 bytes
    folder = Path(tempfile.mkdtemp(prefix="brickd-"))
    folder.chmod(0o711)  # another user may enter the runtime directory by its name, but list nothing
    (folder / "run").mkdir(0o700)
    return _Place(f"{PREFIX}{uuid.uuid4().hex[:8]}-", folder, _state(folder))


def _remove(place: _Place, segments: list[str]) -> None:
    shutil.rmtree(place.folder, ignore_errors=True)
    for name in segments:
        file = SHM / name
        file.rmdir() if file.is_dir() and not file.is_symlink() else file.unlink()


def forget_unused() -> None:
    """Forget the unused directories, because they belong to the process that forked this process. Call this first."""
    _unused.clear()


def remove_unused() -> None:
    """Remove all unused directories; call this last."""
    while _unused:
        _remove(_unused.pop(), [])


@contextmanager
def apart() -> Iterator[str]:
    """Yield a prefix and directories that no other test uses, and remove them at the end."""
    place = _unused.pop() if _unused else _new_place()
    prefix, folder, run = place.prefix, place.folder, place.folder / "run"
    variables = {
        "BRICKD_SHM_PREFIX": prefix,
        "BRICKD_RUNTIME_DIR": str(run),
        "BRICKD_STATE_DIR": str(run / "state"),
        "XDG_RUNTIME_DIR": str(folder / "session"),
        "XDG_STATE_HOME": str(folder / "kept"),
    }
    try:
        with within(variables):
            yield prefix
    except BaseException:
        # do not use the directories of a failed test again: its processes may still run
        place = _Place(prefix, folder, ())
        raise
    finally:
        segments = [name for name in os.listdir(SHM) if name.startswith(prefix)]
        untouched = False
        with suppress(OSError):
            untouched = not segments and _state(folder) == place.made
        if untouched:
            _unused.append(place)
        else:
            _remove(place, segments)
