"""Places of the tests' own: what they start finds nothing of the user's there, and leaves nothing behind.

Owns: the environment in which a test runs, and the one of what several tests share. Must not know: what a test does.
Invariant: no prefix begins with the default one: the user's daemon would drain the workers of the tests.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

SHM = Path("/dev/shm")
PREFIX = "test-brickd-"
# Where defaults are without brickd's own variables. Not HOME, which counts only without the second one: the home of
# the user has the toolchains that some tests run.
_DEFAULTS = ("XDG_RUNTIME_DIR", "XDG_STATE_HOME")


def places() -> dict[str, str]:
    """The variables that name places, or change what brickd does."""
    return {name: value for name, value in os.environ.items() if name.startswith("BRICKD") or name in _DEFAULTS}


@contextmanager
def within(variables: Mapping[str, str]) -> Iterator[None]:
    """Have these variables in place of the present `places`."""
    with pytest.MonkeyPatch.context() as patch:
        for name in places():
            patch.delenv(name)
        for name, value in variables.items():
            patch.setenv(name, value)
        yield


def started_in(prefix: str) -> Iterator[int]:
    """The processes that a command began with this prefix, or one that begins so, in its environment."""
    entry = b"\0BRICKD_SHM_PREFIX=" + prefix.encode()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if entry in b"\0" + (process / "environ").read_bytes():
                yield int(process.name)


@contextmanager
def apart() -> Iterator[str]:
    """A prefix, and directories, that nothing else uses; what is left there is removed at the end."""
    prefix = f"{PREFIX}{uuid.uuid4().hex[:8]}-"
    folder = Path(tempfile.mkdtemp(prefix="brickd-"))  # short: a socket's path has 107 bytes
    folder.chmod(0o711)  # another user may be let into the runtime directory, and sees nothing else
    run = folder / "run"
    run.mkdir(0o700)
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
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        for name in os.listdir(SHM):  # glob compiles the pattern anew for each prefix
            if name.startswith(prefix):
                file = SHM / name
                file.rmdir() if file.is_dir() and not file.is_symlink() else file.unlink()
