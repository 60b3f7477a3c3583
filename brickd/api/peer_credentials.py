"""The process at the other end of a unix socket.

Owns: the kernel's credentials of a client, and its role. Must not know: HTTP, which path needs which role. Invariant: a
role depends only on the kernel's credentials of the client when it connected, never on data that the client sends.
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
_GROUPS_BYTES = 1024  # Python's limit: 256 groups


class Role(IntEnum):
    """The permissions of a client. Each role includes the lower roles."""

    NONE = 0
    READ = 1  # a member of the group
    CONTROL = 2  # the daemon's own user, and root


class Peer(NamedTuple):
    """A client's process, its user and all its groups."""

    pid: int
    uid: int
    groups: frozenset[int]

    def role(self, group: int | None) -> Role:
        """Return the client's role, if members of `group` may read."""
        if self.uid in (0, os.geteuid()):
            return Role.CONTROL
        return Role.READ if group in self.groups else Role.NONE


def peer(connection: socket.socket | TransportSocket) -> Peer:
    """Return the process that connected, with its credentials at that time."""
    pid, uid, gid = _UCRED.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    try:
        listed = connection.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, _GROUPS_BYTES)
    except OSError:  # the client has too many groups, so only its first group is used
        listed = b""
    return Peer(pid, uid, frozenset(struct.unpack(f"{len(listed) // 4}I", listed)) | {gid})
