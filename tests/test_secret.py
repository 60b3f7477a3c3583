"""The service's key, where it cannot be had: which errors are of the moment, and which of the file."""

from __future__ import annotations

import ctypes
import errno
from collections.abc import Callable
from pathlib import Path

from conftest import WRITER
from faults import NATIVE

# Of the process or of its machine: they may be gone at the next try.
PASSING = {"EMFILE", "ENFILE", "ENOMEM", "EINTR", "EAGAIN", "ENOSPC", "EDQUOT"}


def test_errors_of_the_moment_are_these_and_no_others(compiled: Callable[..., Path]) -> None:
    others = [source for source in WRITER if source.name != "brick_secret.c"]
    library = ctypes.CDLL(str(compiled("secret.so", (NATIVE / "secret.c", *others), "-shared", "-fPIC")))
    found = {name for number, name in errno.errorcode.items() if library.secret_passes(number)}
    assert found == PASSING
    assert not library.secret_passes(0)
