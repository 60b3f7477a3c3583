"""How a daemon divides the files it may open: its own, for workers, for clients.

Owns: that division. Must not know: who opens a file. Invariant: whatever workers and clients take of their shares, what
is reserved is left for the drain, the checkpoint and recordings.
"""

from __future__ import annotations

from typing import NamedTuple

from brickd.errors import DaemonRefused

WORKERS_MAX = 1_024
CLIENTS_MIN, CLIENTS_MAX = 8, 100
# Measured: 12 are open in an idle daemon, 17 in one that records, writes its checkpoint and answers three clients. The
# rest is for what is opened for a moment: a draft, a source, a segment that is looked at, a connection on its way out.
RESERVED = 32
_FILES_PER_CLIENT = 2  # its connection, and the recording that it fetches


class Descriptors(NamedTuple):
    """How many there may be at once."""

    workers: int
    clients: int


def divided(limit: int) -> Descriptors:
    """The division of a limit (RLIMIT_NOFILE).

    What is not reserved goes half to clients, at two files each, up to `CLIENTS_MAX`; the rest goes to workers, at one
    file each, up to `WORKERS_MAX`.

    Raises:
        DaemonRefused: it leaves nothing for them.

    >>> divided(64), divided(1024)
    (Descriptors(workers=16, clients=8), Descriptors(workers=792, clients=100))
    """
    left = limit - RESERVED
    clients = min(CLIENTS_MAX, left // 2 // _FILES_PER_CLIENT)
    if clients < CLIENTS_MIN:
        least = RESERVED + CLIENTS_MIN * _FILES_PER_CLIENT * 2
        raise DaemonRefused(
            f"{limit} open files are allowed, at least {least} are needed: raise the limit (ulimit -n {least})"
        )
    return Descriptors(min(WORKERS_MAX, left - clients * _FILES_PER_CLIENT), clients)
