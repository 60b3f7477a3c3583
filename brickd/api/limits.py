"""What a client may take of the daemon.

Owns: the numbers. Must not know: how they are enforced.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from brickd.descriptors import CLIENTS_MAX


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds of one server.

    Attributes:
        connections: how many clients at once. Each is accepted alone, so that of a crowd a few have been let in whose
            requests, though sent, are not read yet: none of these is to be taken for a silent one.
        backlog: how many more wait to be let in.
        streams: how many of them may be told of events, or shown a status again and again.
        threads: how many views are built at once.
        head_bytes: of a request without its body.
        body_bytes: of its body.
        arrive_seconds: how long a request may take to arrive.
        take_seconds: how long a client may take nothing of its answer.
        farewell_seconds: how long answers may still take once the server is to stop: less than the daemon may take.
    """

    connections: int = CLIENTS_MAX
    backlog: int = 32
    streams: int = 16
    threads: int = 2
    head_bytes: int = 16 * 1024
    body_bytes: int = 16 * 1024
    arrive_seconds: float = 5.0
    take_seconds: float = 10.0
    farewell_seconds: int = 1

    @classmethod
    def of(cls, clients: int) -> Self:
        """The limits for a number of clients. Streams never take all places."""
        whole = cls()
        return cls(connections=min(whole.connections, clients), streams=min(whole.streams, clients // 2))
