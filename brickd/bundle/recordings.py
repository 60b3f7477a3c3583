"""The recordings of a bundle: one that is made now or those that the user names, and those of the flight recorder.

Owns: how a recording is made and how long that may take, how the others are found. Must not know: archives, private
words. Invariants: The recording is made by the command `brickd record`, which tells the workers to stop even if this
process is interrupted. A daemon that hangs is not waited for.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from brickd.base.paths import runtime
from brickd.bundle.manifest import RECORDING_BYTES_MAX
from brickd.client import client
from brickd.errors import BrickdError, RecordingRefused
from brickd.recording.library import FlightShelf, flight_recordings, unfetched

_STEP_SECONDS = 0.1
_GRACE_SECONDS = 20.0  # for the daemon's answer, and for the transfer of the file
_END_SECONDS = 5.0
_REASON_BYTES = 4_096
_SHARE = RECORDING_BYTES_MAX // 2  # a copy without private words may be longer


def record(file: Path, seconds: float, *, redact: bool, waits: Callable[[], object]) -> None:
    """Record all workers into a new file.

    Raises:
        BrickdError: nothing was recorded; the error has the reason.
    """
    command = [sys.executable, "-P", "-m", "brickd", "record", "-o", str(file), "--duration", f"{seconds}s"]
    command += ["--files", "1", "--max-size", str(_SHARE), *["--redact"][:redact]]
    with file.with_suffix(".err").open("w+b") as reason:
        # The process is in its own group, so that Ctrl-C reaches it only through `_ended`, after which it is awaited.
        with subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=reason, start_new_session=True
        ) as process:
            try:
                until = time.monotonic() + seconds + _GRACE_SECONDS
                while (code := _code(process)) is None and time.monotonic() < until:
                    waits()
            finally:
                _ended(process)
        reason.seek(0)
        last = reason.read(_REASON_BYTES).decode("utf-8", "replace").strip().rpartition("\n")[2]
    if code is None:
        raise BrickdError(f"brickd record took longer than {seconds + _GRACE_SECONDS:g} s")
    if not file.exists():
        raise BrickdError(last.removeprefix("brickd: ") or f"brickd record ended with exit code {code}")


def _code(process: subprocess.Popen[bytes]) -> int | None:
    with contextlib.suppress(subprocess.TimeoutExpired):
        return process.wait(_STEP_SECONDS)
    return None


def _ended(process: subprocess.Popen[bytes]) -> None:
    """End the process: the first signal ends the recording, the last one kills the process."""
    for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGKILL):
        if process.poll() is not None:
            return
        process.send_signal(number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_END_SECONDS)


def find(words: Sequence[str]) -> list[str]:
    """Return the files of recordings: each word is a path, or the id of a recording that the daemon keeps.

    Raises:
        RecordingRefused: there is no such file and no such recording.
    """
    return [path for word in words for path in _files(word)]


def of_flights(*, silent: bool) -> list[list[str]]:
    """Return the path of each recording of the flight recorder, and when it was made; the oldest first.

    `silent` tells that there is a daemon which does not answer. The directory is read instead.
    """
    if silent:
        client.expect_silence()
    try:
        found = flight_recordings()
    except BrickdError:
        found = [each.document() for each in FlightShelf(runtime().flight_recordings).all()]
    return [[file["path"], each["made"]] for each in found for file in each["files"]]


def _files(word: str) -> Iterator[str]:
    if os.path.lexists(word):
        yield word
        return
    found = [each for each in (*unfetched(), *flight_recordings()) if each["recording"] == word]
    if not found:
        raise RecordingRefused(word, "is neither a file nor the id of a recording (brickd doctor lists the recordings)")
    if found[0]["written"]:
        raise RecordingRefused(word, "is still being written: end it first (Ctrl-C in its brickd record)")
    yield from (each["path"] for each in found[0]["files"])
