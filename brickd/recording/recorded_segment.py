"""The segment of a worker as a recording shows it, without the segment's file.

Owns: the part of a segment's interface that a recording can provide. Must not know: which snapshot is shown. Invariant:
a value that was not recorded is 0 or missing; it never comes from this machine.
"""

from __future__ import annotations

from collections.abc import Sequence

from brickd.datasources.world import DaemonStatus
from brickd.recording.file_index import FileIndex
from brickd.recording.newest_slots import Tails
from brickd.shm import _reader
from brickd.shm.segment_copy import Reading


class RecordedSegment:
    """The recorded segment of one worker."""

    def __init__(self, reading: Reading, daemon: DaemonStatus | None, files: Sequence[FileIndex]) -> None:
        self._reading, self._daemon, self._files = reading, daemon, files
        self._tails: Tails | None = None

    @property
    def header(self) -> _reader.Header:
        """The header that the worker wrote."""
        return self._reading.header

    def read(self) -> Reading:
        """Return the recorded reading."""
        return self._reading

    def consumer(self) -> int | None:
        """Return the pid of the daemon that drained the segment."""
        return None if self._daemon is None else self._daemon.pid

    def control(self) -> _reader.Control:
        """Return the settings that the consumer requested; settings that are not recorded are 0."""
        flags, rate = self._reading.flags, self._reading.asked_rate
        return {
            "flags": flags,
            "fingerprint_rate": rate,
            "dump_site": 0,
            "reopen": 0,
            "weights": 0,
            "attached": 0,
            "epoch": 0,
            "canary": 0,
            "sites": (),
        }

    def ring(self, lane: int, *, events: bool, newest: int) -> tuple[int, bytes]:
        """Return the newest slots that were recorded without a gap.

        The position of the first slot comes first in the result.
        """
        if self._tails is None or self._tails.newest < newest:
            self._tails = self._read_tails(newest)
        return self._tails.ring(lane, events=events)

    def _read_tails(self, newest: int) -> Tails:
        """Read the slots of all lanes together, because the files are long."""
        tails = Tails((number for number, _, _ in self._reading.lanes), newest)
        for file in self._files:
            for _, found in file.records({self._reading.uuid}):
                tails.take(found)
        return tails
