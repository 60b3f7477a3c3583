"""Divides a daemon's file descriptors into three parts: reserved, for workers, and for clients.

Owns: the division of descriptors. Must not know: who opens a file. Invariant: workers and clients never take the
reserved descriptors, which the drain, the checkpoint and recordings need.
"""

from __future__ import annotations

from typing import NamedTuple

from brickd.errors import DaemonRefused

WORKERS_MAX = 1_024
CLIENTS_MIN, CLIENTS_MAX = 8, 100
# Measured: an idle daemon has 12 open descriptors; a daemon that records, writes its checkpoint and answers three
# clients has 17. The rest is reserved for short uses: a draft of a file, a source, an inspected segment, a closing
# connection.
RESERVED = 32
_FILES_PER_CLIENT = 2  # a client's connection, and the recording that it fetches
_PORT_CLIENTS_MAX = 32  # at the TCP port; five browsers with six connections each


class Descriptors(NamedTuple):
    """The maximum numbers of workers and of clients at one time."""

    workers: int
    clients: int


class ClientShares(NamedTuple):
    """The maximum numbers of clients of the socket and of the TCP port at one time."""

    socket: int
    port: int


def shared(clients: int) -> ClientShares:
    """Divide the clients' descriptors between the socket and the TCP port.

    A client of the port needs only one descriptor, because it never fetches a recording. The port gets at most half of
    the descriptors.

    >>> shared(8), shared(100)
    (ClientShares(socket=4, port=8), ClientShares(socket=84, port=32))
    """
    port = min(_PORT_CLIENTS_MAX, clients // 2 * _FILES_PER_CLIENT)
    return ClientShares(clients - port // _FILES_PER_CLIENT, port)


def divided(limit: int) -> Descriptors:
    """Divide the limit of open files (RLIMIT_NOFILE).

    Half of the descriptors that are not reserved are for clients, two for each client, up to `CLIENTS_MAX`. The others
    are for workers, one for each worker, up to `WORKERS_MAX`.

    Raises:
        DaemonRefused: too few descriptors are left for clients.

    >>> divided(64), divided(1024)
    (Descriptors(workers=16, clients=8), Descriptors(workers=792, clients=100))
    """
    left = limit - RESERVED
    clients = min(CLIENTS_MAX, left // 2 // _FILES_PER_CLIENT)
    if clients < CLIENTS_MIN:
        least = RESERVED + CLIENTS_MIN * _FILES_PER_CLIENT * 2
        raise DaemonRefused(
            f"the limit of open files is {limit}, expected at least {least}: raise it (ulimit -n {least})"
        )
    return Descriptors(min(WORKERS_MAX, left - clients * _FILES_PER_CLIENT), clients)
