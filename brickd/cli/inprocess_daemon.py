"""A daemon in this process, and a guardian process that withdraws the daemon's orders if this process is killed.

Owns: the directory, descriptors and group of a process that runs a daemon, and the guardian. Must not know: what the
daemon does. Invariants: However the process ends, the daemon ends cleanly: its state is saved and its orders to workers
are withdrawn. The guardian has no other task, and ends with the process that it guards.
"""

from __future__ import annotations

import contextlib
import gc
import os
import resource
import select
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

from brickd.analysis.numerics.fingerprints import WINDOW_BYTES
from brickd.base.open_file_limits import Descriptors, divided
from brickd.base.paths import Runtime
from brickd.daemon.daemon import Daemon
from brickd.daemon.flight_recorder import FlightLimits
from brickd.daemon.notify import Target
from brickd.errors import BrickdError, DaemonRefused
from brickd.state.runtime_dir import Home

_USUAL_GC = (700, 10, 10)


def group() -> int | None:
    """Return the group whose members may query the daemon; None if there is no such group.

    Raises:
        DaemonRefused: the group does not exist.
    """
    import grp

    name = os.environ.get("BRICKD_GROUP")
    if not name:
        return None
    try:
        return int(name) if name.isdecimal() else grp.getgrnam(name).gr_gid
    except KeyError:
        raise DaemonRefused(
            f"BRICKD_GROUP is {name!r}, expected a group of this system (getent group lists them)"
        ) from None


def descriptors() -> Descriptors:
    """Raise the limit of open files to the hard limit; return how many workers and clients this limit allows.

    Raises:
        DaemonRefused: the limit is too low.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return divided(hard)


@contextlib.contextmanager
def draining(
    here: Runtime,
    group: int | None,
    *,
    numerics_bytes: int = WINDOW_BYTES,
    stays: bool = True,
    targets: Sequence[Target] = (),
    serves_metrics: bool = False,
    metrics_textfile: Path | None = None,
    flight: FlightLimits | None = None,
) -> Iterator[Daemon]:
    """Run a daemon that drains workers.

    Args:
        here: the runtime directory of the daemon.
        group: the group whose members may query the daemon; None if there is no such group.
        numerics_bytes: the limit in bytes of the fingerprints in memory.
        stays: whether workers that end cleanly leave their segments for the daemon; False if the daemon only makes a
            recording.
        targets: the receivers of alarms.
        serves_metrics: whether pages of metrics are made.
        metrics_textfile: the file for pages of metrics; None if no file is written.
        flight: the limits of the flight recorder; None if there is no flight recorder.

    Raises:
        DaemonRefused: the daemon may not start.
    """
    gc.set_threshold(*_USUAL_GC)
    with Home(here, group=group) as home:
        most = descriptors().workers
        daemon = Daemon(
            home,
            workers_max=most,
            numerics_bytes=numerics_bytes,
            stays=stays,
            targets=targets,
            serves_metrics=serves_metrics,
            metrics_textfile=metrics_textfile,
            flight=flight,
        )
        daemon.start()
        try:
            yield daemon
        finally:
            daemon.end()


@contextlib.contextmanager
def guarded(here: Runtime, group: int | None) -> Iterator[None]:
    """Start a guardian, which acts if this process is killed. Call this before threads start, because it forks."""
    try:
        guardian = _begin(here, group)
    except OSError:  # Linux is older than 5.3, or there is no room for a process; the next daemon ends the orders.
        yield
        return
    try:
        yield
    except BrickdError:
        _dismiss(guardian)
        raise
    else:
        _dismiss(guardian)  # not reached after an exception: then the guardian cleans up


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
    for fd in map(int, os.listdir("/proc/self/fd")):  # only the open descriptors, because the limit may be a billion
        if fd > 2 and fd != process:
            with contextlib.suppress(OSError):
                os.close(fd)
    select.select([process], [], [])  # waits until the guarded process has ended and its locks are free
    # If another daemon already runs, do nothing, because that daemon withdraws the orders.
    with contextlib.suppress(BrickdError), draining(here, group, stays=False):
        pass
