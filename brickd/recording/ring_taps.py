"""The rings of a recording, and the ids of their workers.

Owns: the ids of workers, and how these are written to a file. Must not know: files, how records reach them. Invariants:
An id belongs to the same worker in all files of a recording. An id is assigned before the first record with this id is
drained.
"""

from __future__ import annotations

from collections.abc import Iterable

from brickd.base import json_values
from brickd.base.json_values import plain
from brickd.shm import _reader

_REPLY_BYTES_MAX = 1 << 22


class Rings:
    """The rings of the recorded workers. A thread must hold the roster's lock to change them.

    `names`: the workers to record; all if empty. `spans`: whether each span is recorded in detail.
    """

    def __init__(self, names: tuple[str, ...], *, spans: bool) -> None:
        self.names, self.spans = names, spans
        self._spool: _reader.Spool | None = None
        self._numbers: dict[str, int] = {}
        self._uuids = [""]  # the uuids by number; the list only grows, so reading it needs no lock

    def wants(self, name: str, service: str) -> bool:
        """Whether the worker with this name and service is recorded."""
        return not self.names or name in self.names or service in self.names

    def into(self, spool: _reader.Spool | None) -> None:
        """Record into this spool from now on; None stops the recording of rings."""
        self._spool = spool

    def take(self, uuid: str, drain: _reader.Drain) -> None:
        """Record the rings of a drained worker."""
        if uuid not in self._numbers:
            self._numbers[uuid] = len(self._uuids)
            self._uuids.append(uuid)
        drain.record_into(self._spool, self._numbers[uuid])

    def written(self, numbers: Iterable[int]) -> bytes:
        """Encode a chunk that tells which workers have these ids. Any thread may call this."""
        return plain({self._uuids[number]: number for number in sorted(numbers)}).encode()


def read_numbers(body: bytes) -> dict[str, int]:
    """Decode the output of `written` into ids by uuid; raise a ValueError if it is invalid."""
    with json_values.validating():
        return {
            json_values.text(uuid): json_values.whole(number)
            for uuid, number in json_values.document(body, _REPLY_BYTES_MAX).items()
        }
