"""What was told while it was recorded: the last thousand events, as many as a daemon remembers.

Owns: which of a recording's events are kept. Must not know: where they stand in a file, who reads them. Invariants: as
of a daemon's, a reader knows how many it missed; whatever their number and order in a file, no more than that are in
memory, or twice as many on the way.
"""

from __future__ import annotations

from brickd.events import KEPT, Event, Page


class RecordedEvents:
    """The newest of them, in the order of their numbers."""

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._events: dict[int, Event] = {}
        self._first = 2**64  # number of the oldest there was

    def add(self, event: Event) -> None:
        """Take one that was found."""
        self._first = min(self._first, event.number)
        self._events[event.number] = event
        if len(self._events) > 2 * self._kept:
            self._events = {each.number: each for each in self._newest()}

    def merge(self, other: RecordedEvents) -> None:
        """Take those of another file of the set."""
        for event in other._newest():
            self.add(event)
        self._first = min(self._first, other._first)

    def since(self, number: int) -> Page:
        """Those after the one of this number; missed are those that are forgotten, or were told and not recorded."""
        newest = self._newest()
        if not newest:
            return Page((), 0, 0)
        events = tuple(event for event in newest if event.number > number)
        told = newest[-1].number - max(number, self._first - 1)
        return Page(events, max(0, told - len(events)), newest[-1].number)

    def _newest(self) -> list[Event]:
        return [self._events[number] for number in sorted(self._events)[-self._kept :]]
