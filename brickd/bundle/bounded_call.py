"""A call with a deadline, in a process of its own.

Owns: the process, its deadline, and why there is no result. Must not know: what is called. Invariants: The caller
waits at most a second longer than the deadline, whatever the call does: it may wait for a daemon that hangs, for a file
system that does not answer, or crash. After Ctrl-C, the process is killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from brickd.errors import BrickdError

_PIECE_BYTES = 1 << 20
_STEP_SECONDS = 0.1
_REAP_SECONDS = 1.0

Waits = Callable[[], object]  # called several times a second while the caller waits


class CallResult(NamedTuple):
    """The result of a call.

    Attributes:
        value: the returned value as JSON; None if the call failed.
        reason: why the call failed; None if it did not.
        late: whether the deadline passed.
    """

    value: Any = None
    reason: str | None = None
    late: bool = False


def bounded_call(call: Callable[[], Any], seconds: float, bytes_max: int, waits: Waits = lambda: None) -> CallResult:
    """Run a function that returns JSON values. Its output is discarded; an error becomes the reason."""
    receiving, sending = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid == 0:
        os.close(receiving)
        _run(call, sending)  # does not return
    os.close(sending)
    try:
        written, late = _received(receiving, time.monotonic() + seconds, bytes_max, waits)
    finally:
        os.close(receiving)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        status = _reaped(pid)
    if late:
        return CallResult(reason=f"it took longer than {seconds:g} s", late=True)
    if len(written) > bytes_max:
        return CallResult(reason=f"it has more than {bytes_max:,} bytes, the limit of a document in a bundle")
    if not written:
        return CallResult(reason=f"the process that made it ended with {_how(status)} (this is a defect of brickd)")
    found: dict[str, Any] = json.loads(written)
    return CallResult(found["value"], found["reason"])


def _run(call: Callable[[], Any], sending: int) -> None:
    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        nothing = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1, 2):
            os.dup2(nothing, standard)
        value, reason = None, None
        try:
            value = call()
        except BrickdError as error:
            reason = str(error)
        except Exception as error:
            reason = f"{type(error).__name__}: {error} (this is a defect of brickd: please report it)"
        written = memoryview(json.dumps({"value": value, "reason": reason}).encode())
        while written:
            written = written[os.write(sending, written) :]
    finally:
        os._exit(0)


def _received(receiving: int, until: float, bytes_max: int, waits: Waits) -> tuple[bytes, bool]:
    """Return what the process wrote, and whether its time was over."""
    poll = select.poll()
    poll.register(receiving, select.POLLIN)
    pieces: list[bytes] = []
    length = 0
    while (left := until - time.monotonic()) > 0:
        if poll.poll(min(left, _STEP_SECONDS) * 1000):
            piece = os.read(receiving, _PIECE_BYTES)
            pieces.append(piece)
            length += len(piece)
            if not piece or length > bytes_max:
                return b"".join(pieces), False
        else:
            waits()
    return b"", True


def _reaped(pid: int) -> int:
    """Wait a short time for a killed process; return its status. The kernel may not end it until a disk answers."""
    until = time.monotonic() + _REAP_SECONDS
    while time.monotonic() < until:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return status
        time.sleep(0.001)
    return 0


def _how(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    return f"signal {-code}" if code < 0 else f"exit code {code}"
