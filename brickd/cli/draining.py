"""A daemon in this process, for as long as something is done with it.

Owns: what a process needs that drains: the directory, descriptors, a group. Must not know: what is done meanwhile.
Invariant: however that ends, the daemon comes to its end and keeps what it read.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager

from brickd.daemon import Daemon
from brickd.descriptors import Descriptors, divided
from brickd.errors import DaemonRefused
from brickd.home import Home
from brickd.numerics.numerics import WINDOW_BYTES
from brickd.runtime import Runtime


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
