"""Messages to the service manager that started the daemon: systemd's notify protocol.

Owns: the words of the protocol and its environment variables. Must not know: what a daemon does. Invariants: Without a
manager, nothing is sent. If a manager has ended or is slow, only its message is lost. Keep-alives are sent only while
the loop runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Mapping

_PATIENCE_SECONDS = 1.0  # how long a message waits if the manager's queue is full for a moment
_SIGNS = 2  # how many keep-alives are sent within the manager's timeout
_CALM_NS = 2_000_000_000  # the loop runs if its last round is not older; an idle loop makes a round each second


class Manager:
    """The service manager that the environment names, if any. The manager needs a keep-alive every `every_ns`."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._address = _address(environment.get("NOTIFY_SOCKET", ""))
        self.every_ns = _every_ns(environment) if self._address else None

    def ready(self, status: str) -> None:
        """Report that the daemon answers."""
        self._send("READY=1", f"MAINPID={os.getpid()}", f"STATUS={status}", wait=_PATIENCE_SECONDS)

    def stopping(self) -> None:
        """Report that the daemon is stopping."""
        self._send("STOPPING=1", "STATUS=ending", wait=_PATIENCE_SECONDS)

    async def watch(self, still_ns: Callable[[], int]) -> None:
        """Send keep-alives from this event loop while the daemon's loop runs.

        `still_ns` returns the time since the daemon's loop last ran.
        """
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
            # Each line sets a variable, so a line break in a value must not start another variable.
            message = "\n".join(line.replace("\n", " ") for line in lines)
            sender.sendto(os.fsencode(message), self._address)


def _address(name: str) -> bytes:
    """Return the address of a socket, which is a path or abstract; b"" if the name is not usable."""
    if not name.startswith(("/", "@")) or len(name) < 2:
        return b""
    address = os.fsencode(name)
    return b"\0" + address[1:] if name.startswith("@") else address


def _every_ns(environment: Mapping[str, str]) -> int | None:
    usec, pid = environment.get("WATCHDOG_USEC", ""), environment.get("WATCHDOG_PID", str(os.getpid()))
    if not usec.isascii() or not usec.isdigit() or int(usec) == 0 or pid != str(os.getpid()):
        return None
    return int(usec) * 1000 // _SIGNS
