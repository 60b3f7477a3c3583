"""Counts of a service's fingerprints over the last hour, in slots of five minutes.

Owns: the counts, and how long a comparison counts as proof. Must not know: sites, screens. Invariants: A service has at
most SLOTS slots, even if the system clock is changed. Slots that are older than an hour or in the future do not count.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from brickd.base.json_values import listed, whole

SLOT_NS = 300_000_000_000
SLOTS = 12
WINDOW_NS = SLOTS * SLOT_NS


class FingerprintCounts(NamedTuple):
    """Counts of fingerprints.

    Attributes:
        fingerprints: the number of all fingerprints.
        without_inputs: the number of fingerprints without inputs. They have no counterpart.
        stateful: the number of fingerprints whose output depends on state that is not an input.
        met: the number of fingerprints whose inputs another worker also had.
        left_out: the number of rows that are not compared, because too many workers have rows.
    """

    fingerprints: int = 0
    without_inputs: int = 0
    stateful: int = 0
    met: int = 0
    left_out: int = 0

    def plus(self, other: FingerprintCounts) -> FingerprintCounts:
        """The sum."""
        return FingerprintCounts(*map(sum, zip(self, other, strict=True)))

    @property
    def compared(self) -> int:
        """Return how many comparable fingerprints were compared. The counterpart may be in a later slot."""
        return min(self.met, max(0, self.fingerprints - self.without_inputs - self.stateful - self.left_out))

    @property
    def alone(self) -> int:
        """The number of comparable fingerprints without a counterpart in another worker."""
        return max(0, self.fingerprints - self.without_inputs - self.stateful - self.left_out - self.compared)


class RecentSlot(NamedTuple):
    """The counts of one slot; `number` is its start since 1970, divided by the length of a slot."""

    number: int
    counts: FingerprintCounts


Recent = tuple[RecentSlot, ...]


def added(recent: Recent, at_ns: int, counts: FingerprintCounts) -> Recent:
    """Add counts to the slots, and drop slots that no longer count."""
    number = at_ns // SLOT_NS
    kept = _current(recent, number)
    if kept and kept[-1].number == number:
        return (*kept[:-1], RecentSlot(number, kept[-1].counts.plus(counts)))
    return (*kept, RecentSlot(number, counts))


def within(recent: Recent, now_ns: int) -> FingerprintCounts:
    """The sum of the slots that count now."""
    total = FingerprintCounts()
    for _, counts in _current(recent, now_ns // SLOT_NS):
        total = total.plus(counts)
    return total


def _current(recent: Recent, number: int) -> Recent:
    return tuple(each for each in recent if number - SLOTS < each.number <= number)


def plain(recent: Recent) -> list[list[int]]:
    """The JSON of the slots."""
    return [[each.number, *each.counts] for each in recent]


def of_document(rows: Any) -> Recent:
    """Decode the output of `plain`. An older daemon did not count the rows that are left out."""
    slots = (
        RecentSlot(whole(number), FingerprintCounts._make(map(whole, counts + [0] * (len(counts) == 4))))
        for number, *counts in listed(rows, SLOTS)
    )
    return tuple(sorted(slots))
