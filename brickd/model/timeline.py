"""What held in the past: values, each with the time from which and until which it held.

Owns: when a value begins and ends, and which ended values are forgotten. Must not know: what a value means. Invariants:
A timeline is immutable, so any thread may read it. Its size is bounded. A time at which a forgotten value held is
unknown: it never looks as if nothing had held.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Generic, NamedTuple, TypeVar

from brickd.base.units import SECOND
from brickd.model.survey_snapshot import EVERY_NS

PRESENT_MAX = 1_024
PAST_MAX = 1_024
KEPT_NS = 48 * 3_600 * SECOND  # as long as the file of the last day

Value = TypeVar("Value")


class Fact(NamedTuple, Generic[Value]):
    """A value that holds now.

    Attributes:
        key: what it is a value of.
        since_ns: since when it holds, as far as that is known; times are since 1970.
    """

    key: str
    value: Value
    since_ns: int


class Spell(NamedTuple, Generic[Value]):
    """A value, from `began_ns` until just before `ended_ns`, which is None while it holds."""

    key: str
    value: Value
    began_ns: int
    ended_ns: int | None = None

    def holds(self, at_ns: int) -> bool:
        """Whether the value held at a time."""
        return self.began_ns <= at_ns and (self.ended_ns is None or at_ns < self.ended_ns)


class Timeline(NamedTuple, Generic[Value]):
    """The values that hold now, by key, and earlier ones.

    Attributes:
        past: the ended values, in the order in which they ended.
        complete_ns: every value that held at this time or later is here.
    """

    present: Mapping[str, Spell[Value]] = MappingProxyType({})
    past: tuple[Spell[Value], ...] = ()
    complete_ns: int = 0

    def updated(
        self, facts: Iterable[Fact[Value]], at_ns: int, alike: Callable[[Value, Value], bool]
    ) -> Timeline[Value]:
        """Return the timeline after a check at a time, which found these facts.

        If the value of a key is like the value before, it replaces that value, and the spell continues.
        """
        present: dict[str, Spell[Value]] = {}
        complete_ns = self.complete_ns
        for fact in facts:
            if len(present) >= PRESENT_MAX and fact.key not in present:
                complete_ns = max(complete_ns, at_ns + EVERY_NS)  # until the next check
                continue
            before = self.present.get(fact.key)
            if before is not None and alike(before.value, fact.value):
                present[fact.key] = before._replace(value=fact.value)
            else:
                began_ns = at_ns if before is not None else self._began_ns(fact, at_ns)
                present[fact.key] = Spell(fact.key, fact.value, began_ns)
        over = [
            each._replace(ended_ns=at_ns)
            for key, each in self.present.items()
            if key not in present or present[key].began_ns != each.began_ns
        ]
        past = (*self.past, *(each for each in over if each.began_ns < at_ns)) if over else self.past
        return Timeline(MappingProxyType(present), past, complete_ns).bounded(at_ns)

    def bounded(self, at_ns: int) -> Timeline[Value]:
        """Return the timeline without the ended values that are too many or too old."""
        old = sum((each.ended_ns or 0) < at_ns - KEPT_NS for each in self.past)
        if not (gone := self.past[: max(old, len(self.past) - PAST_MAX)]):
            return self
        complete_ns = max(self.complete_ns, *(each.ended_ns or 0 for each in gone))
        return self._replace(past=self.past[len(gone) :], complete_ns=complete_ns)

    def unknown_until(self, at_ns: int) -> Timeline[Value]:
        """Return the timeline with all values before a time unknown."""
        return self._replace(complete_ns=max(self.complete_ns, at_ns))

    def at(self, at_ns: int) -> list[Value] | None:
        """Return the values that held at a time; None if some of them may be forgotten."""
        if at_ns < self.complete_ns:
            return None
        return [each.value for each in (*self.past, *self.present.values()) if each.holds(at_ns)]

    def _began_ns(self, fact: Fact[Value], at_ns: int) -> int:
        """Return when a new spell began. A value may be found after it began, but two spells of a key do not overlap.

        A value that comes back with the beginning of its earlier spell was away in between.
        """
        ended = (each.ended_ns or 0 for each in reversed(self.past) if each.key == fact.key)
        return fact.since_ns if next(ended, 0) < fact.since_ns < at_ns else at_ns
