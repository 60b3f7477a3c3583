"""Who is at the other end of a unix socket.

Owns: what the kernel says of a client, and its role. Must not know: HTTP, which path needs which role. Invariant: a
client is believed for what it was when it connected, and for nothing that it says.
"""

from __future__ import annotations

import os
import socket
import struct
from asyncio.trsock import TransportSocket
from enum import IntEnum
from typing import NamedTuple

_UCRED = struct.Struct("iII")
_SO_PEERGROUPS = 59  # Linux 4.13; Python has no name for it
_GROUPS_BYTES = 1024  # the most that Python asks for: 256 groups


class Role(IntEnum):
    """What a client may do; each role may do what those below it may."""

    NONE = 0
    READ = 1  # a member of the group
    CONTROL = 2  # the daemon's own user, and root


class Peer(NamedTuple):
    """A client's process, its user and all its groups."""

    pid: int
    uid: int
    groups: frozenset[int]

    def role(self, group: int | None) -> Role:
        """Its role, where members of `group` may read."""
        if self.uid in (0, os.geteuid()):
            return Role.CONTROL
        return Role.READ if group in self.groups else Role.NONE


def peer(connection: socket.socket | TransportSocket) -> Peer:
    """The process that connected, as it was then."""
    pid, uid, gid = _UCRED.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    try:
        listed = connection.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, _GROUPS_BYTES)
    except OSError:  # more groups than fit: then its first one counts alone
        listed = b""
    return Peer(pid, uid, frozenset(struct.unpack(f"{len(listed) // 4}I", listed)) | {gid})
