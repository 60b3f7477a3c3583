"""The TCP socket of the web page and of metrics.

Owns: on which addresses the socket may listen. Must not know: HTTP requests, what is served. Invariant: only this
machine can connect.
"""

from __future__ import annotations

import ipaddress
import socket

from brickd.errors import BrickdError, WrongQuestion

_BACKLOG = 32


class TcpListener:
    """A listening TCP socket on a loopback address.

    Attributes:
        address: the address, with the port that the system chose if port 0 was given.
        name: the address without the port.
    """

    def __init__(self, address: str) -> None:
        """Listen at HOST:PORT.

        Raises:
            WrongQuestion: the address is not a loopback address.
            BrickdError: the port is not free.
        """
        host, port = _parsed(address)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.socket = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            # Without this, the port is not free while connections of an earlier daemon are still ending.
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self.socket.bind((host, port))
            self.socket.listen(_BACKLOG)
        except OSError as error:
            self.socket.close()
            raise BrickdError(
                f"--http {address}: cannot listen: {error.strerror} (brickd status shows whether a daemon runs;"
                " ss -ltnp shows other processes; or choose another port)"
            ) from None
        self.name = f"[{host}]" if ":" in host else host
        self.address = f"{self.name}:{self.socket.getsockname()[1]}"

    def close(self) -> None:
        """Stop listening."""
        self.socket.close()


def _parsed(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    expected = "expected 127.0.0.1:PORT, [::1]:PORT or localhost:PORT"
    if not host or not port.isascii() or not port.isdecimal() or len(port) > 5 or int(port) > 65535:
        raise WrongQuestion(f"--http {address}: not an address with a port, {expected}")
    host = "127.0.0.1" if host == "localhost" else host.removeprefix("[").removesuffix("]")
    try:
        local = ipaddress.ip_address(host).is_loopback
    except ValueError:
        raise WrongQuestion(f"--http {address}: {host} is not an IP address, {expected}") from None
    if not local:
        raise WrongQuestion(
            f"--http {address}: {host} is reachable from other machines, {expected}"
            " (a proxy with TLS can forward to it)"
        )
    return host, int(port)
