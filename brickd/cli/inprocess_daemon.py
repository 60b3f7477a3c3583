"""A daemon in this process for as long as a verb needs one, and the guardian that ends its orders if it is killed.

Owns: the directory, descriptors and group of such a process, and the guardian process. Must not know: what is done
meanwhile. Invariants: however that ends, the daemon comes to its end and keeps what it read, and the orders to workers
end too; the guardian does nothing else, and ends with the process that it guards.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
from collections.abc import Iterator
from contextlib import contextmanager

from brickd.analysis.numerics.fingerprints import WINDOW_BYTES
from brickd.base.open_file_limits import Descriptors, divided
from brickd.base.paths import Runtime
from brickd.daemon.daemon import Daemon
from brickd.errors import BrickdError, DaemonRefused
from brickd.state.runtime_dir import Home


def group() -> int | None:
    """The group whose members may ask; None: nobody's.

    Raises:
        DaemonRefused: there is no such group.
    """
    import grp

    name = os.environ.get("BRICKD_GROUP")
    if not name:
        return None
    try:
        return int(name) if name.isdecimal() else grp.getgrnam(name).gr_gid
    except KeyError:
        raise DaemonRefused(f"BRICKD_GROUP is {name!r}, which is not a group of this system") from None


def descriptors() -> Descriptors:
    """How many workers and clients this process has files for, once it may have as many as anybody lets it.

    Raises:
        DaemonRefused: for none.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return divided(hard)


@contextmanager
def draining(
    here: Runtime, group: int | None, *, numerics_bytes: int = WINDOW_BYTES, stays: bool = True
) -> Iterator[Daemon]:
    """A daemon that drains.

    Args:
        here: where it is.
        group: whose members may ask; None: nobody's.
        numerics_bytes: so much is held of what workers say of their tensors.
        stays: whether it is a daemon, to which workers leave their segments at a clean end; not a recording alone.

    Raises:
        DaemonRefused: it may not start.
    """
    with Home(here, group=group) as home:
        most = descriptors().workers
        daemon = Daemon(home, workers_max=most, numerics_bytes=numerics_bytes, stays=stays)
        daemon.start()
        try:
            yield daemon
        finally:
            daemon.end()


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
