"""The targets of alarms: a command and a URL. Each gets one JSON document at a time.

Owns: how a document reaches each target, the time limit, the signature. Must not know: what a document means, queues,
when to retry. Invariants: A delivery takes no longer than the limit, even if the command, the resolver or the server
hangs. Redirects are not followed. An https server needs a certificate that this machine trusts. The text of a failure
never contains the path of the URL or the secret.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import http.client
import os
import shlex
import signal
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import SplitResult, urlsplit

from brickd.base.secret_file import secret_of
from brickd.daemon.notify import Target, TargetFailed
from brickd.errors import WrongQuestion

LIMIT_SECONDS = 10.0
SIGNATURE = "brickd-signature"


class CommandTarget:
    """A command that reads a document from its stdin. The command runs without a shell."""

    def __init__(self, command: str, limit_seconds: float = LIMIT_SECONDS) -> None:
        """Parse a command line; raise WrongQuestion if it cannot be parsed."""
        try:
            self._arguments = shlex.split(command)
        except ValueError as error:
            raise WrongQuestion(f"--notify-exec {command}: {error}, expected a command line") from None
        if not self._arguments:
            raise WrongQuestion("--notify-exec is empty, expected a command line")
        if "/" in self._arguments[0]:  # a background daemon has another working directory
            self._arguments[0] = os.path.abspath(self._arguments[0])
        self._limit_seconds = limit_seconds
        self._running: subprocess.Popen[bytes] | None = None

    @property
    def name(self) -> str:
        """The name of the program."""
        return f"command {self._arguments[0]}"

    def send(self, body: bytes) -> str:
        """Run the command. If it runs longer than the limit, kill it and its children."""
        try:
            process = subprocess.Popen(
                self._arguments,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            raise TargetFailed(f"cannot be started: {reason}") from None
        self._running = process
        try:
            process.communicate(body, timeout=self._limit_seconds)
        except subprocess.TimeoutExpired:
            self.cancel()
            process.communicate()
            raise TargetFailed(f"did not end within {self._limit_seconds:g} s and was killed") from None
        finally:
            self._running = None
        if process.returncode < 0:
            raise TargetFailed(f"ended by signal {-process.returncode}")
        if process.returncode:
            raise TargetFailed(f"exit status {process.returncode}")
        return "exit status 0"

    def cancel(self) -> None:
        """Kill the command and its children."""
        process = self._running
        if process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)


class Address(NamedTuple):
    """The parts of a URL that was checked."""

    scheme: str
    host: str
    port: int
    path: str

    @classmethod
    def of(cls, url: str) -> Address:
        """Parse a URL; raise WrongQuestion if it is not an http or https URL."""
        expected = "expected http://HOST[:PORT]/PATH or https://HOST[:PORT]/PATH"
        try:
            parts: SplitResult = urlsplit(url)
            port = parts.port
        except ValueError:
            raise WrongQuestion(f"--notify-url is not a URL, {expected}") from None
        if parts.scheme not in ("http", "https") or not parts.hostname or not url.isascii() or not url.isprintable():
            raise WrongQuestion(f"--notify-url is not a URL of http or https, {expected}")
        if parts.username is not None or parts.password is not None:
            raise WrongQuestion(f"--notify-url contains a user or a password: use --notify-secret-file; {expected}")
        path = parts.path or "/"
        default = 443 if parts.scheme == "https" else 80
        return cls(parts.scheme, parts.hostname, port or default, f"{path}?{parts.query}" if parts.query else path)


_Places = list[tuple[int, int, int, str, tuple[str | int, ...]]]


class UrlTarget:
    """A URL to which documents are sent by POST, signed if there is a secret."""

    def __init__(
        self,
        url: str,
        secret: bytes | None = None,
        limit_seconds: float = LIMIT_SECONDS,
        look_up: Callable[..., Any] = socket.getaddrinfo,
    ) -> None:
        self._address, self._secret, self._limit_seconds = Address.of(url), secret, limit_seconds
        self._look_up = look_up
        self._lookup: Future[_Places] | None = None
        self._socket: socket.socket | None = None

    @property
    def name(self) -> str:
        """The URL without its path, because the path may be a secret."""
        return f"{self._address.scheme}://{self._address.host}:{self._address.port}"

    def send(self, body: bytes) -> str:
        """Post a document, within the time limit."""
        headers = {"content-type": "application/json", "user-agent": "brickd", "connection": "close"}
        if self._secret is not None:
            headers[SIGNATURE] = f"sha256={hmac.new(self._secret, body, hashlib.sha256).hexdigest()}"
        late, deadline = threading.Event(), time.monotonic() + self._limit_seconds

        def interrupt() -> None:
            late.set()
            self._shut()

        timer = threading.Timer(self._limit_seconds, interrupt)  # the socket's timeout starts again with each byte
        timer.daemon = True
        timer.start()
        connection: http.client.HTTPConnection | None = None
        try:
            connection = self._connected(deadline)
            if late.is_set():
                raise TimeoutError
            connection.request("POST", self._address.path, body, headers)
            status = connection.getresponse().status
        except ssl.SSLCertVerificationError as error:
            raise TargetFailed(f"its certificate is not trusted: {error.verify_message}") from None
        except (OSError, http.client.HTTPException, UnicodeError) as error:  # UnicodeError: an invalid host name
            if late.is_set() or isinstance(error, TimeoutError):
                raise TargetFailed(f"no answer within {self._limit_seconds:g} s", again=True) from None
            raise TargetFailed(f"no answer: {_reason(error)}", again=True) from None
        finally:
            timer.cancel()
            if connection is not None:
                connection.close()
            elif self._socket is not None:
                self._socket.close()
            self._socket = None
        if 300 <= status < 400:
            raise TargetFailed(f"answered {status}, and redirects are not followed")
        if not 200 <= status < 300:
            raise TargetFailed(f"answered {status}", again=status >= 500 or status == 429)
        return f"answered {status}"

    def _connected(self, deadline: float) -> http.client.HTTPConnection:
        host, port = self._address.host, self._address.port
        of = self._reached(self._places(deadline), deadline)
        if self._address.scheme == "http":
            connection = http.client.HTTPConnection(host, port)
        else:
            context = ssl.create_default_context()
            of = self._socket = context.wrap_socket(of, server_hostname=host, do_handshake_on_connect=False)
            of.do_handshake()
            connection = http.client.HTTPSConnection(host, port, context=context)
        connection.sock = of
        return connection

    def _places(self, deadline: float) -> _Places:
        """Look up the host in another thread, because a look-up cannot be interrupted."""
        if self._lookup is None or self._lookup.done():
            self._lookup = Future()
            threading.Thread(target=self._resolve, args=(self._lookup,), name="brickd-lookup", daemon=True).start()
        try:
            return self._lookup.result(_left(deadline))
        except TimeoutError:
            if self._lookup.done():  # the resolver raised the timeout
                raise
            raise TargetFailed(f"its name was not resolved within {self._limit_seconds:g} s", again=True) from None

    def _resolve(self, lookup: Future[_Places]) -> None:
        with contextlib.suppress(InvalidStateError):  # the delivery was interrupted
            try:
                lookup.set_result(self._look_up(self._address.host, self._address.port, type=socket.SOCK_STREAM))
            except (OSError, UnicodeError) as error:
                lookup.set_exception(error)

    def _reached(self, places: _Places, deadline: float) -> socket.socket:
        """Connect to the first address that answers. Each address gets an equal part of the remaining time."""
        failure = OSError("its name has no address")
        for number, (family, kind, protocol, _, place) in enumerate(places):
            of = self._socket = socket.socket(family, kind, protocol)
            try:
                of.settimeout(_left(deadline) / (len(places) - number))
                of.connect(place)
            except OSError as error:
                of.close()
                failure = error
            else:
                of.settimeout(_left(deadline))
                return of
        raise failure

    def cancel(self) -> None:
        """End the current delivery."""
        if (lookup := self._lookup) is not None:
            with contextlib.suppress(InvalidStateError):
                lookup.set_exception(InterruptedError())
        self._shut()

    def _shut(self) -> None:
        of = self._socket
        if of is not None:
            with contextlib.suppress(OSError):  # ssl's shutdown is not used, because plain text would be sent after it
                socket.socket.shutdown(of, socket.SHUT_RDWR)


def _left(deadline: float) -> float:
    return max(0.001, deadline - time.monotonic())


def _reason(error: Exception) -> str:
    text = (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
    return text[:200]


def targets(command: str | None, url: str | None, secret_file: Path | None) -> Sequence[Target]:
    """Return the targets that the options of `brickd up` name; raise WrongQuestion for an invalid option."""
    if secret_file is not None and url is None:
        raise WrongQuestion("--notify-secret-file needs --notify-url: give both")
    found: list[Target] = []
    if command is not None:
        found.append(CommandTarget(command))
    if url is not None:
        found.append(UrlTarget(url, None if secret_file is None else secret_of(secret_file, "--notify-secret-file")))
    return found
