"""A model of a lane in plain Python: the effect of each call on counters, totals and rings.

The model follows brick_shm.h and brick_agent.h, and uses lists and dictionaries where the writer has linked nodes. Only
one thread at a time uses the lane, and the test decides what the clock shows.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

ROOT, OTHER = 0xFFFF, 0
NO_LAYER, LAYER_MAX = -1, 0xFFFFFE
AMOUNT_MAX = 2**48
U64 = 2**64 - 1
OFF, SPANS = 1, 2
TICKS, NS, DEFERRED = 0, 1, 2
SPAN, STEP, DEFER, FINALIZE, MEASURED = 1, 2, 3, 4, 5
BRICK_MAX, UNNAMED = 2**16 - 1, 2**32 - 1
FIRST, LAST, JOINED, REFUSED, UNMATCHED = 1, 2, 4, 8, 16


def bucket_of(ticks: int) -> int:
    return min(max((ticks**4).bit_length() - 1 - 20, 0), 127)


@dataclass(eq=False)
class Frame:
    """An open span or layer scope, compared by identity."""

    scope: bool
    brick: int
    path: int
    layer: int
    step: int
    start: int = 0
    child: int = 0


@dataclass
class Stack:
    """The open frames of one key. `refused` counts the begins that got no frame. Spans are nested, so these spans end
    before the others.
    """

    frames: list[Frame] = field(default_factory=list)
    refused: int = 0
    borrowed: bool = False


@dataclass(slots=True)
class Summary:
    count: int = 0
    total: int = 0
    child: int = 0
    again: int = 0
    squares: float = 0.0
    min: int = 0
    max: int = 0
    elements: int = 0
    bytes: int = 0
    histogram: Counter[int] = field(default_factory=Counter)

    def add(self, duration: int, child: int, again: int, elements: int, amount: int) -> None:
        self.min = min(self.min, duration) if self.count else duration
        self.max = max(self.max, duration)
        self.count += 1
        self.total += duration
        self.child += child
        self.again += again
        self.squares += float(duration) * float(duration)
        self.elements += elements
        self.bytes += amount
        self.histogram[bucket_of(duration)] += 1


@dataclass
class Ring:
    """All records that were ever accepted, and the position of the consumer."""

    slots: int
    records: list[dict[str, int]] = field(default_factory=list)
    tail: int = 0  # the last tail that the writer accepted
    pair: tuple[int, int] = (0, 0)  # the tail and its complement, as the consumer wrote them

    def holds(self, position: int) -> bool:
        return position <= len(self.records) <= position + self.slots

    def believed(self) -> bool:
        position, complement = self.pair
        return position == complement ^ U64 and self.holds(position)

    def free(self, counters: Counter[str], kept: int = 0) -> bool:
        """Return whether more than `kept` slots are free.

        The writer reads the tail of the consumer only if the last tail that the writer accepted leaves no room.
        """
        if len(self.records) - self.tail + kept >= self.slots:
            if self.believed():
                self.tail = self.pair[0]
            elif self.pair != (0, 0):
                counters["tails_refused"] += 1
        return len(self.records) - self.tail + kept < self.slots

    def oldest(self) -> int | None:
        """Return the position of the oldest record that a reader finds. The complement is the newer of the two words,
        because a consumer writes it before the position.
        """
        position, following = self.pair[0], self.pair[1] ^ U64
        if position <= following and self.holds(following):
            return following
        return 0 if self.pair == (0, 0) and self.holds(0) else None


class Lane:
    def __init__(self, paths: int, slots: int, event_slots: int) -> None:
        self.room = paths
        self.spans, self.events = Ring(slots), Ring(event_slots)
        self.events_dropped: Counter[int] = Counter()
        self.given = 0  # the number of deferred ids
        self.pending: Counter[int] = Counter()  # pending deferred starts, by stream
        self.counters: Counter[str] = Counter()
        self.dropped_full = self.rejected_clock = self.rejected_room = 0
        self.paths: list[tuple[int, int, int, int]] = [(ROOT, OTHER, NO_LAYER, TICKS)]
        self.known: dict[tuple[int, int, int, int], int] = {}
        self.summaries: list[Summary] = [Summary()]
        self.asked = 0  # the flags in the control page
        self.enabled = True
        self.joined = False
        self.stacks: dict[int, Stack] = {}
        self.order: list[Frame] = []  # the open spans, in the order of their starts

    # ---- code at the beginning of every call

    def _on(self) -> bool:
        return self.enabled and not self.asked & OFF

    def _join(self) -> int:
        if self.joined:
            return 0
        self.joined = True
        self.counters["opened"] += 1
        return JOINED

    def _ignored(self, key: int) -> None:
        """Note a begin that is not recorded, inside an open frame, so that its end does not end another span."""
        stack = self.stacks.get(key)
        if stack is not None and stack.frames:
            stack.refused += 1

    # ---- spans

    def begin(self, brick: int, key: int, step: int | None, now: int) -> int:
        if not self.enabled:
            self._ignored(key)
            return 0
        outcome = self._join()
        if not self._on():
            self._ignored(key)
            return outcome
        stack = self.stacks.setdefault(key, Stack())
        if stack.refused or brick > BRICK_MAX:
            self._ignored(key)
            self.counters["begun"] += 1
            self.rejected_room += 1
            return outcome | REFUSED
        above = stack.frames[-1] if stack.frames else None
        if not above:
            outcome |= FIRST
            stack.borrowed = False
        layer = above.layer if above else NO_LAYER
        path = self._path(above.path if above else ROOT, brick, layer)
        inherited = above.step if above else 0
        frame = Frame(False, brick, path, layer, inherited if step is None else step, now)
        stack.frames.append(frame)
        self.order.append(frame)
        self.counters["begun"] += 1
        return outcome

    def _path(self, parent: int, brick: int, layer: int, unit: int = TICKS) -> int:
        if parent == OTHER:
            return OTHER
        key = (parent, brick, layer, unit)
        if key not in self.known:
            at = parent
            while at != ROOT and self.paths[at][1:] != key[1:]:
                at = self.paths[at][0]
            if at == ROOT:
                if len(self.paths) == self.room:
                    return OTHER
                at = len(self.paths)
                self.paths.append(key)
                self.summaries.append(Summary())
            self.known[key] = at
        return self.known[key]

    def end(self, brick: int, key: int, elements: int, amount: int, now: int, kind: int = SPAN) -> int:
        outcome = self._join() if self.enabled else 0
        stack = self.stacks.get(key, Stack())
        if not self._on() and not stack.frames:
            return outcome
        if stack.refused:
            stack.refused -= 1
            return outcome
        places = [n for n, frame in enumerate(stack.frames) if not frame.scope and frame.brick == brick]
        if not places:
            self.counters["unmatched"] += 1
            return outcome | UNMATCHED
        self._abandon(stack, places[-1] + 1)
        frame = stack.frames.pop()
        self.order.remove(frame)
        elements, amount = self._checked(elements), self._checked(amount)
        if kind == STEP and amount > elements:
            self.counters["amounts"] += 1
            amount = elements
        duration = now - frame.start
        if duration < 0:
            self.rejected_clock += 1
        else:
            around = [each for each in stack.frames if not each.scope]
            if around:
                around[-1].child += duration
            again = duration if any(each.path == frame.path for each in around) else 0
            self._publish(frame, duration, again, elements, amount, kind)
        return outcome | self._last(stack)

    def _publish(self, frame: Frame, duration: int, again: int, elements: int, amount: int, kind: int) -> None:
        work = (amount, 0) if kind == STEP else (elements, amount)
        self.summaries[frame.path].add(duration, frame.child, again, *work)
        self.counters["summarized"] += 1
        if self.asked & SPANS:
            self._record(frame, duration, elements, amount, kind)

    def _last(self, stack: Stack) -> int:
        return 0 if stack.frames or stack.borrowed else LAST

    def record(self, brick: int, key: int, ns: int, elements: int, amount: int, now: int) -> int:
        if not self.enabled:
            return 0
        outcome = self._join()
        if not self._on():
            return outcome
        stack = self.stacks.get(key, Stack())
        self.counters["begun"] += 1
        above = stack.frames[-1] if stack.frames else None
        around = (above.path, above.layer) if above else (ROOT, NO_LAYER)
        path = self._path(around[0], brick, around[1], NS) if brick <= BRICK_MAX else OTHER
        if stack.refused or path == OTHER:
            self.rejected_room += 1
            return outcome | REFUSED
        if ns > AMOUNT_MAX:
            self.rejected_clock += 1
            return outcome | REFUSED
        given = Frame(False, brick, path, NO_LAYER, above.step if above else 0, now)
        self._publish(given, ns, 0, self._checked(elements), self._checked(amount), SPAN)
        return outcome

    # ---- deferred work

    def defer(
        self, brick: int, key: int, stream: int, step: int | None, elements: int, amount: int, now: int
    ) -> tuple[int, int]:
        if not self.enabled:
            return 0, 0
        outcome = self._join()
        if not self._on():
            return outcome, 0
        stack = self.stacks.get(key, Stack())
        above = stack.frames[-1] if stack.frames else None
        path = OTHER
        if brick <= BRICK_MAX and not stack.refused:
            around = (above.path, above.layer) if above else (ROOT, NO_LAYER)
            path = self._path(around[0], brick, around[1], DEFERRED)
        work = {"elements": self._checked(elements), "bytes": self._checked(amount)}
        if not self._wanted(DEFER, path != OTHER and self._kept_free(8)):
            return outcome | REFUSED, 0
        self.given += 1
        self.pending[stream] += 1
        inherited = above.step if above else 0
        start = {"path": path, "start": now, "stream": stream, "id": 1 << 48 | self.given}
        self._event(DEFER, **start, step=inherited if step is None else step, **work)
        return outcome, 1 << 48 | self.given

    def measured(self, number: int, ns: int) -> int:
        if number == 0 or not (self.joined or self.enabled):
            return 0
        outcome = self._join()
        if not self._on() and not self.pending.total():
            return outcome
        if not 0 < number - (1 << 48) <= self.given:
            self.counters["unmatched"] += 1
            return outcome | UNMATCHED
        if ns > AMOUNT_MAX:
            self.counters["amounts"] += 1
            return outcome | REFUSED
        if not self._wanted(MEASURED, self._kept_free(64)):
            return outcome | REFUSED
        self._event(MEASURED, id=number, elapsed_ns=ns)
        return outcome

    def finalize(self, stream: int | None, now: int) -> int:
        covered = [*self.pending] if stream is None else [stream] if self.pending[stream] else []
        if not covered or not (self.joined or self.enabled):
            return 0
        outcome = self._join()
        if not self._wanted(FINALIZE, self.events.free(self.counters)):
            return outcome | REFUSED
        self._event(FINALIZE, every=int(stream is None), ticks=now, stream=stream or 0)
        for each in covered:
            del self.pending[each]
        return outcome

    def _kept_free(self, part: int) -> bool:
        """Return whether the event ring still has room after a part of it is reserved for records of other kinds."""
        return self.events.free(self.counters, -(-self.events.slots // part))

    def _wanted(self, kind: int, room: bool) -> bool:
        self.counters["event_attempts"] += 1
        self.events_dropped[kind] += not room
        return room

    def _event(self, kind: int, **fields: int) -> None:
        sequence = self.counters["event_attempts"]
        self.events.records.append({"sequence": sequence, "slots": 1, "kind": kind, **fields})

    def borrow(self, key: int) -> None:
        if self.joined and key in self.stacks and self.stacks[key].frames:
            self.stacks[key].borrowed = True

    def _checked(self, amount: int) -> int:
        if amount <= AMOUNT_MAX:
            return amount
        self.counters["amounts"] += 1
        return 0

    def _abandon(self, stack: Stack, keep: int) -> None:
        for frame in stack.frames[keep:]:
            if not frame.scope:
                self.counters["abandoned"] += 1
                self.order.remove(frame)
        del stack.frames[keep:]
        stack.refused = 0

    # ---- the span ring

    def _record(self, frame: Frame, duration: int, elements: int, amount: int, kind: int) -> None:
        self.counters["span_attempts"] += 1
        if not self.spans.free(self.counters):
            self.dropped_full += 1
            return
        self.spans.records.append(
            {
                "sequence": self.counters["span_attempts"],
                "path": frame.path,
                "slots": 1,
                "kind": kind,
                "start": frame.start,
                "duration": duration,
                "child": frame.child,
                "step": frame.step,
                "elements": elements,
                "bytes": amount,
            }
        )

    # ---- layers

    def layer(self, layer: int, key: int) -> int:
        if not self.enabled:
            self._ignored(key)
            return 0
        outcome = self._join()
        if not self._on():
            self._ignored(key)
            return outcome
        stack = self.stacks.setdefault(key, Stack())
        if stack.refused:
            stack.refused += 1
            return outcome | REFUSED
        if layer > LAYER_MAX:
            self.counters["amounts"] += 1
            layer = NO_LAYER
        above = stack.frames[-1] if stack.frames else None
        stack.frames.append(Frame(True, -1, above.path if above else ROOT, layer, above.step if above else 0))
        if not above:
            stack.borrowed = False
        return outcome | (0 if above else FIRST)

    def unlayer(self, layer: int, key: int) -> int:
        layer = layer if layer <= LAYER_MAX else NO_LAYER
        outcome = self._join() if self.enabled else 0
        stack = self.stacks.get(key, Stack())
        if not self._on() and not stack.frames:
            return outcome
        if stack.refused:
            stack.refused -= 1
            return outcome
        places = [n for n, frame in enumerate(stack.frames) if frame.scope and frame.layer == layer]
        if not places:
            self.counters["unmatched"] += 1
            return outcome | UNMATCHED
        self._abandon(stack, places[-1] + 1)
        stack.frames.pop()
        return outcome | self._last(stack)

    # ---- threads

    def exit(self) -> None:
        for stack in self.stacks.values():
            self._abandon(stack, 0)
        self.stacks.clear()
        self.joined = False

    # ---- what a reader must find

    def line(self) -> dict[str, Any]:
        newest = self.order[-1] if self.order else None
        return {
            **{name: self.counters[name] for name in ("begun", "summarized", "opened", "abandoned", "unmatched")},
            **{name: self.counters[name] for name in ("amounts", "tails_refused", "span_attempts", "event_attempts")},
            **dict.fromkeys(("nested", "marks", "marks_refused", "weights_every", "weights_once", "rows_turns"), 0),
            "open": len(self.order),
            "current": (newest.start >> 8 << 16 | newest.path) if newest else 0,
            "span_head": len(self.spans.records),
            "rejected": (self.rejected_clock, self.rejected_room),
            "span_dropped": (self.dropped_full, 0),
            "event_head": len(self.events.records),
            "event_records": len(self.events.records),
            "event_dropped": tuple(self.events_dropped[kind] for kind in range(16)),
        }
