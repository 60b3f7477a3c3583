"""What becomes of the workers where a process that drains them for a while is killed.

Owns: the guardian, a process that waits for that. Must not know: why it drains. Invariants: what was asked of workers
ends with whoever asked, however that ends; there is one way of ending it, that of a daemon; of itself the guardian does
nothing and says nothing, and it goes with whom it guards.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import Iterator

from brickd.cli.draining import draining
from brickd.errors import BrickdError
from brickd.runtime import Runtime


@contextlib.contextmanager
def guarded(here: Runtime, group: int | None) -> Iterator[None]:
    """Have a daemon for a moment follow this process, where it is killed meanwhile; to begin before any thread does."""
    try:
        guardian = _begin(here, group)
    except OSError:  # Linux 5.3 can, and may; and there is room for a process: else the next daemon sees to it
        yield
        return
    try:
        yield
    except BrickdError:
        _dismiss(guardian)
        raise
    else:
        _dismiss(guardian)  # not where anything else came between: then it sees to it that nothing is left


def _begin(here: Runtime, group: int | None) -> int:
    this = os.pidfd_open(os.getpid())
    try:
        guardian = os.fork()
        if guardian == 0:
            try:
                _guard(this, here, group)
            finally:
                os._exit(0)
        return guardian
    finally:
        os.close(this)


def _dismiss(guardian: int) -> None:
    os.kill(guardian, signal.SIGKILL)
    os.waitpid(guardian, 0)


def _guard(process: int, here: Runtime, group: int | None) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for each in range(3):
        os.dup2(nothing, each)
    for fd in map(int, os.listdir("/proc/self/fd")):  # there may be room for a billion
        if fd > 2 and fd != process:
            with contextlib.suppress(OSError):
                os.close(fd)
    select.select([process], [], [])  # its locks are free only then
    with (
        contextlib.suppress(BrickdError),
        draining(here, group, stays=False),
    ):  # one that is there already does the same
        pass
