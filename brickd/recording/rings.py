"""Whose rings go into a recording, each under a number that stands for its worker.

Owns: these numbers, their form in a file, and that a file holds those that its records name. Must not know: how records
come into a file. Invariant: a number stands for the same worker in all files of a recording.
"""

from __future__ import annotations

import contextlib
import json
import time

from brickd import _reader
from brickd.composed import plain
from brickd.recording import judged


class Rings:
    """Those of the workers that are recorded; whoever calls has the roster's lock.

    Attributes:
        names: of workers and services; everybody where nobody is named.
        spans: whether each span is wanted in detail.
    """

    def __init__(self, names: tuple[str, ...], *, spans: bool) -> None:
        self.names, self.spans = names, spans
        self._file: _reader.Recording | None = None
        self._numbers: dict[str, int] = {}
        self._said: set[str] = set()  # that this file holds
        self._unsaid: dict[str, int] = {}  # that it is to hold

    def wants(self, name: str, service: str) -> bool:
        """Whether this worker is recorded."""
        return not self.names or name in self.names or service in self.names

    def into(self, file: _reader.Recording | None) -> None:
        """Records go there from now on; None: nowhere."""
        self._file = file
        self._said.clear()
        self._unsaid.clear()

    def take(self, uuid: str, drain: _reader.Drain) -> None:
        """One that is drained and wanted."""
        number = self._numbers.setdefault(uuid, len(self._numbers) + 1)
        if uuid not in self._said:
            self._unsaid[uuid] = number
            self._say()
        drain.record_into(self._file, number)

    def _say(self) -> None:
        """Have the file hold these, and those before them that it had no room for."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.append(_reader.CHUNK_WORKERS, time.time_ns(), plain(self._unsaid).encode())
                self._said |= self._unsaid.keys()
                self._unsaid.clear()


def read_numbers(body: bytes) -> dict[str, int]:
    """Numbers that a file holds, by uuid.

    Raises:
        ValueError: these are none.
    """
    with judged.judging():
        return {judged.text(uuid): judged.whole(number) for uuid, number in json.loads(body).items()}
