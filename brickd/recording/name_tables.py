"""Which names, paths and sites are in force at a place of a recording.

Owns: which chunks they come from, and how many of these are held. Must not know: what readings make of them.
Invariants: a place is read with the tables before it; however many a file holds, only those of the last few generations
are in memory, as bytes of the file.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from brickd.recording import body_codec
from brickd.recording.chunks import Chunk, Form
from brickd.shm import _reader, segment_codec

# A writer begins afresh every minute, and adds to that with each snapshot at most.
_CHUNKS_MAX = 64
_BYTES_MAX = 2 * _reader.CHUNK_BYTES_MAX

Refuse = Callable[[Chunk, ValueError], object]


class _Found(NamedTuple):
    """The tables of a chunk of `size` bytes; `afresh`: earlier ones are not needed any more."""

    tables: segment_codec.SharedTables
    afresh: bool
    size: int


_NOTHING = segment_codec.SharedTables({}, {}, {})


class NameTables:
    """The tables of a file; `refuse` gets the invalid ones."""

    def __init__(self, form: Form, refuse: Refuse) -> None:
        self._form, self._refuse = form, refuse
        self._places: deque[int] = deque(maxlen=_CHUNKS_MAX)
        self._read: dict[int, _Found] = {}  # by their places: those that were in force at the last place

    def add(self, place: int) -> None:
        """Note a chunk of tables at this place, after all others."""
        self._places.append(place)

    def at(self, place: int) -> segment_codec.SharedTables:
        """Those that are in force there."""
        before, self._read = self._read, {}
        size = 0
        for each in reversed(self._places):
            if each < place:
                found = before.get(each) or self._found(each)
                size += found.size
                if size > _BYTES_MAX:
                    break
                self._read[each] = found
                if found.afresh:
                    break
        result = _NOTHING
        for found in reversed(self._read.values()):
            result |= found.tables
        return result

    def _found(self, place: int) -> _Found:
        chunk = self._form.again(place)
        if chunk is None:
            return _Found(_NOTHING, False, 0)
        try:
            return _Found(*body_codec.read_tables(chunk.body), len(chunk.body))
        except ValueError as error:
            self._refuse(chunk, error)
            return _Found(_NOTHING, False, len(chunk.body))
