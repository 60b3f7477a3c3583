"""Messages to the service manager that started us, if any: systemd's notify protocol.

Owns: the words of the protocol and the environment that asks for them. Must not know: what a daemon does. Invariants:
without a manager nothing is sent; a manager that is gone or slow costs only its message; signs of life are sent only
while the loop lives.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Mapping

_PATIENCE_SECONDS = 1.0  # its queue may be full for a moment; what is said once waits so long for it
_SIGNS = 2  # so many within the time after which it takes us for dead
_CALM_NS = 2_000_000_000  # a loop that has nothing to do comes round once a second


class Manager:
    """The service manager that the environment names, if any; wants a sign of life `every_ns`."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._address = _address(environment.get("NOTIFY_SOCKET", ""))
        self.every_ns = _every_ns(environment) if self._address else None

    def ready(self, status: str) -> None:
        """The daemon answers."""
        self._send("READY=1", f"MAINPID={os.getpid()}", f"STATUS={status}", wait=_PATIENCE_SECONDS)

    def stopping(self) -> None:
        """The daemon ends."""
        self._send("STOPPING=1", "STATUS=ending", wait=_PATIENCE_SECONDS)

    async def watch(self, still_ns: Callable[[], int]) -> None:
        """Send signs of life from this loop while the working loop comes round (`still_ns`)."""
        if self.every_ns is None:
            return
        while True:
            if still_ns() < max(self.every_ns, _CALM_NS):
                self._send("WATCHDOG=1")
            await asyncio.sleep(self.every_ns / 1e9)

    def _send(self, *lines: str, wait: float = 0.0) -> None:
        if not self._address:
            return
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.settimeout(wait)
            # A line is a variable: a name with a line break in it must not become another one.
            message = "\n".join(line.replace("\n", " ") for line in lines)
            sender.sendto(os.fsencode(message), self._address)


def _address(name: str) -> bytes:
    """Of a socket with a path, or of an abstract one; b"": of none that we can send to."""
    if not name.startswith(("/", "@")) or len(name) < 2:
        return b""
    address = os.fsencode(name)
    return b"\0" + address[1:] if name.startswith("@") else address


def _every_ns(environment: Mapping[str, str]) -> int | None:
    usec, pid = environment.get("WATCHDOG_USEC", ""), environment.get("WATCHDOG_PID", str(os.getpid()))
    if not usec.isascii() or not usec.isdigit() or int(usec) == 0 or pid != str(os.getpid()):
        return None
    return int(usec) * 1000 // _SIGNS
