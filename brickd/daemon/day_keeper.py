"""Keeps the last day: a slot for every snapshot, and a longer one for every five minutes.

Owns: when a slot begins and ends, and which slots are used for a period. Must not know: the content of a slot, the
format of the file, who asks. Invariants: If a daemon is killed, the next one restores the unfinished long slot from the
short slots on disk. Where there are short slots for a part of a period, they are used instead of long ones, and no time
counts twice. A slot that could not be saved is reported.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

from brickd.model.day_codec import decode, encode
from brickd.model.day_slots import DaySlot, SlotTables, slot, total
from brickd.model.event_log import LogEvent
from brickd.model.survey_snapshot import Snapshot
from brickd.state.day_file import CONTENT_BYTES, LENGTHS_NS, DayFile, SlotPlace

_SHORT, _LONG = 0, 1
_SHORT_NS, _LONG_NS = LENGTHS_NS


class DayKeeper:
    """The slots of the last two days. One thread adds snapshots; any thread may query."""

    def __init__(self, path: Path, log_event: LogEvent) -> None:
        self._path, self._log_event = path, log_event
        self._lock = threading.Lock()
        self._before: Snapshot | None = None
        self._tables = SlotTables()
        self._trouble = ""
        self._file = self._opened()
        self._long = self._unfinished()

    def _opened(self) -> DayFile | None:
        try:
            return DayFile(self._path)
        except OSError as error:
            self._report(error, "the data of the last day are not kept")
            return None

    def _unfinished(self) -> DaySlot | None:
        """Return the sum of the short slots that no long slot includes yet."""
        if self._file is None:
            return None
        long = self._file.places[_LONG]
        ended_ns = long[-1].ended_ns if long else 0
        places = [each for each in self._file.places[_SHORT] if each.began_ns >= ended_ns]
        return total(self._contents(places, work=True))

    def end(self) -> None:
        """Close the file."""
        with self._lock:
            if self._file is not None:
                self._file.close()
                self._file = None

    # ---- adding

    def take(self, snapshot: Snapshot) -> None:
        """Receive the next snapshot."""
        before, self._before = self._before, snapshot
        if before is not None and self._file is not None:
            self._add(slot(before, snapshot, self._tables))

    def _add(self, short: DaySlot) -> None:
        long = self._long
        if long is not None and not 0 <= short.ended_ns - long.began_ns < _LONG_NS + _SHORT_NS // 2:
            self._save(_LONG, long)  # after a pause, or a step of the clock
            long = None
        self._save(_SHORT, short)
        long = short if long is None else long.and_(short)
        is_whole = long.ended_ns - long.began_ns >= _LONG_NS - _SHORT_NS // 2
        self._long = None if is_whole and self._save(_LONG, long) else long

    def _save(self, tier: int, of: DaySlot) -> bool:
        content = encode(of, CONTENT_BYTES)
        try:
            with self._lock:
                if self._file is not None:
                    self._file.append(tier, of.began_ns, of.ended_ns, content)
                    self._trouble = ""
        except OSError as error:
            self._report(error, "a slot of the last day is lost")
            return False
        return True

    def _report(self, error: OSError, what: str) -> None:
        """Report a failure, but only once while it lasts."""
        why = error.strerror or str(error)
        if why != self._trouble:
            self._trouble = why
            self._log_event("day_failed", f"{self._path}: {why}: {what}")

    # ---- asked

    def between(self, began_ns: int, ended_ns: int) -> DaySlot | None:
        """Return the work of a period, as exactly as the slots allow; None if there is no slot for the period.

        The times are since 1970.
        """
        return total(self.slots(began_ns, ended_ns, work=False))

    def slots(self, began_ns: int, ended_ns: int, *, work: bool) -> Iterator[DaySlot]:
        """Return the slots for a period, the oldest first. With `work`, they include the work of each worker."""
        with self._lock:
            places = [] if self._file is None else _places(self._file, began_ns, ended_ns)
        return self._contents(places, work=work)

    def _contents(self, places: list[SlotPlace], *, work: bool) -> Iterator[DaySlot]:
        for place in places:
            try:
                with self._lock:
                    content = None if self._file is None else self._file.content(place)
                if content is not None:
                    yield decode(content, place.began_ns, place.ended_ns, work=work)
            except (OSError, ValueError) as error:
                with self._lock:
                    known = self._file is not None and place in self._file.places[place.tier]
                    if self._file is not None and known:
                        self._file.places[place.tier].remove(place)  # reported once, and never read again
                if known:
                    self._log_event("day_failed", f"{self._path}: slot {place.sequence} is left out: {error}")


def _places(file: DayFile, began_ns: int, ended_ns: int) -> list[SlotPlace]:
    """Return the slots within a period, in order. If there are none, return the slot around its middle."""
    short = file.places[_SHORT]
    long = [each for each in file.within(_LONG, began_ns, ended_ns) if not short or each.began_ns < short[0].began_ns]
    rest_ns = long[-1].ended_ns if long else 0
    found = [*long, *(each for each in file.within(_SHORT, began_ns, ended_ns) if each.began_ns >= rest_ns)]
    middle_ns = (began_ns + ended_ns) // 2
    return found or file.around(_SHORT, middle_ns) or file.around(_LONG, middle_ns)
