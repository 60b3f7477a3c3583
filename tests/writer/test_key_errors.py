"""Errors while the key of checksums is read: some are temporary, the others are caused by the key file."""

from __future__ import annotations

import ctypes
import errno
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import WRITER
from faults import NATIVE, Start

# Errors of the process or the machine, after which the next attempt can succeed.
PASSING = {"EMFILE", "ENFILE", "ENOMEM", "EINTR", "EAGAIN", "ENOSPC", "EDQUOT"}


def test_these_errors_are_temporary_and_no_others(compiled: Callable[..., Path]) -> None:
    others = [source for source in WRITER if source.name != "key_file.c"]
    library = ctypes.CDLL(str(compiled("secret.so", (NATIVE / "secret.c", *others), "-shared", "-fPIC")))
    found = {name for number, name in errno.errorcode.items() if library.secret_passes(number)}
    assert found == PASSING
    assert not library.secret_passes(0)


@pytest.mark.parametrize(
    ("home", "state", "expected"),
    [
        ("{}/home", "", "home/.local/state/brickd/key"),
        *(
            pytest.param(*each, marks=pytest.mark.ci)
            for each in (
                ("{}/home", "relative", "home/.local/state/brickd/key"),
                ("{}/home", "{}/state", "state/brickd/key"),
                ("home", "", None),
                ("/", "", None),
                ("", "", None),
            )
        ),
    ],
)
def test_without_a_configured_file_the_key_is_in_the_state_directory(
    worker: Start, tmp_path: Path, home: str, state: str, expected: str | None
) -> None:
    places = {"HOME": home.format(tmp_path), "XDG_STATE_HOME": state.format(tmp_path), "BRICKD_STATE_DIR": ""}
    process = worker("brick.init(); brick.checksum('k', bytes(64)); pause()", **places)
    process.paused()
    keys = [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("key")]
    assert keys == ([expected] if expected else [])
    process.go()
    process.end()
    assert ("has no directory" in process.stderr) == (expected is None)
