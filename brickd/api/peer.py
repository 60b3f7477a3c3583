"""Who is at the other end of a unix socket.

Owns: what the kernel says of a client, and who may ask. Must not know: HTTP. Invariant: a client is believed for what
it was when it connected, and for nothing that it says.
"""

from __future__ import annotations

import os
import socket
import struct
from asyncio.trsock import TransportSocket
from typing import NamedTuple

_UCRED = struct.Struct("iII")
_SO_PEERGROUPS = 59  # Linux 4.13; Python has no name for it
_GROUPS_BYTES = 1024  # the most that Python asks for: 256 groups


class Peer(NamedTuple):
    """A client's process, its user and all its groups."""

    pid: int
    uid: int
    groups: frozenset[int]

    def may_ask(self, group: int | None) -> bool:
        """Whether it is our own user, root, or of the group."""
        return self.uid in (0, os.geteuid()) or group in self.groups


def peer(connection: socket.socket | TransportSocket) -> Peer:
    """The process that connected, as it was then."""
    pid, uid, gid = _UCRED.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    try:
        listed = connection.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, _GROUPS_BYTES)
    except OSError:  # more groups than fit: then its first one counts alone
        listed = b""
    return Peer(pid, uid, frozenset(struct.unpack(f"{len(listed) // 4}I", listed)) | {gid})
