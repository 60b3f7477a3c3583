"""Made-up workers: their spans are summarized as the agent would summarize them, on a clock that the test sets.

This is a second implementation of the writer's rules in brick_shm.h: the path of a span, the time of its children,
recursion.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import dtypes
import numpy as np
from hypothesis import strategies as st

from brickd.model.workers import Worker
from brickd.shm import _reader
from brickd.shm.ledger import ledger_of
from brickd.shm.segment_copy import CallPath, Reading

OTHER = CallPath(-1, 0, -1, 0)
HOSTILE = '=cmd()"\n|-- \x1b[2J'


@dataclass
class _Sums:
    durations: list[int] = field(default_factory=list)
    child: int = 0
    again: int = 0
    elements: int = 0
    bytes: int = 0


@dataclass
class _Frame:
    path: int
    began: int
    child: int = 0


@dataclass
class MadeUp:
    """One thread of one worker; `room` is the limit on the number of its paths, including `other`."""

    service: str = "made"
    tick_ns: float = 1.0
    room: int = 65472
    now: int = 0
    numbers: dict[str, int] = field(default_factory=lambda: {"other": 0})
    categories: dict[int, int] = field(default_factory=dict)
    paths: list[CallPath] = field(default_factory=lambda: [OTHER])
    sums: list[_Sums] = field(default_factory=lambda: [_Sums()])
    stack: list[_Frame] = field(default_factory=list)
    interned: dict[CallPath, int] = field(default_factory=dict)

    def spend(self, ticks: int) -> None:
        self.now += ticks

    def begin(self, name: str, layer: int = -1, category: str | None = None) -> None:
        self.stack.append(_Frame(self._path(name, layer, 0, category), self.now))

    def end(self, elements: int = 0) -> None:
        frame = self.stack.pop()
        duration, sums = self.now - frame.began, self.sums[frame.path]
        sums.durations.append(duration)
        sums.child += frame.child
        sums.elements += elements
        if any(each.path == frame.path for each in self.stack):
            sums.again += duration
        if self.stack:
            self.stack[-1].child += duration

    def give(self, name: str, ns: int) -> None:
        """Add a time that was measured elsewhere; if there is no room for its path, it is dropped."""
        path = self._path(name, -1, _reader.UNIT_NS, None)
        if path:
            self.sums[path].durations.append(ns)

    def mark(
        self, name: str, unit: int, *, count: int = 1, layer: int = -1, below: int | None = None, size_bytes: int = 0
    ) -> int:
        """Record a mark below a path; by default, this is the open path. Return the path of the mark, or 0 if there is
        no room.
        """
        parent = (self.stack[-1].path if self.stack else -1) if below is None else below
        path = CallPath(parent, self._name(name), layer, unit)
        number = self.interned.get(path)
        if number is None:
            number = self.interned[path] = self._intern(path)
        if number:
            self.sums[number].durations += [0] * count
            self.sums[number].bytes += size_bytes
        return number

    def launch(self, name: str, shape: str | None = None, layer: int = -1) -> None:
        """Launch a kernel below the open path."""
        launched = self.mark(name, _reader.UNIT_LAUNCHED, layer=layer)
        if shape is not None and launched:
            self.mark(shape, _reader.UNIT_SHAPED, below=launched)

    def needs(self, name: str) -> None:
        """Record that the open path needs this name."""
        if self.stack:
            self.mark(name, _reader.UNIT_NEEDS)

    def _name(self, name: str, category: str | None = None) -> int:
        number = self.numbers.setdefault(name, len(self.numbers))
        if category is not None:
            self.categories.setdefault(number, self._name(category))
        return number

    def _path(self, name: str, layer: int, unit: int, category: str | None) -> int:
        path = CallPath(self.stack[-1].path if self.stack else -1, self._name(name, category), layer, unit)
        if path.parent == 0:
            return 0
        number = self.interned.get(path)
        if number is None:
            number = self.interned[path] = self._intern(path)
        return number

    def _intern(self, path: CallPath) -> int:
        above = path.parent
        while above >= 0:
            if self.paths[above][1:] == path[1:]:
                return above
            above = self.paths[above].parent
        if len(self.paths) == self.room:
            return 0
        self.paths.append(path)
        self.sums.append(_Sums())
        return len(self.paths) - 1

    def reading(self) -> Reading:
        entries = np.zeros(len(self.paths), dtypes.dtype("summary"))
        for entry, sums in zip(entries, self.sums, strict=True):
            entry["count"], entry["total"] = len(sums.durations), sum(sums.durations)
            entry["child"], entry["again"], entry["elements"] = sums.child, sums.again, sums.elements
            entry["bytes"] = sums.bytes
            for duration in sums.durations:
                entry["squares"] += float(duration) ** 2
                entry["histogram"][min(max((duration**4).bit_length() - 21, 0), 127)] += 1
            if sums.durations:
                entry["min"], entry["max"] = min(sums.durations), max(sums.durations)
        header: Any = {"service": self.service.encode(), "coordinates": b"", "index": -1, "uuid": bytes(16)}
        process: Any = {"no_lane": 0, "tensors_refused": 0}
        return Reading(
            file="made-up",
            header=header,
            process=process,
            lanes=[],
            names=[(text, self.categories.get(number, 0)) for text, number in self.numbers.items()],
            paths=list(self.paths),
            summaries=entries.tobytes(),
            odd=0,
            moving=0,
            pid=1,
            tick_ns=self.tick_ns,
            now_ticks=self.now,
            memory_bytes=0,
        )

    def worker(self, name: str) -> Worker:
        reading = self.reading()
        return Worker(name, reading, ledger_of(reading))


_NAME = st.sampled_from(["a", "b", "c", "other", HOSTILE])
_STEP = st.one_of(
    st.tuples(st.just("begin"), _NAME, st.integers(-1, 2), st.sampled_from([None, "norm", "ffn"])),
    st.tuples(st.just("spend"), st.integers(0, 2**20)),
    st.tuples(st.just("end"), st.integers(0, 9)),
)
_GIVE = st.tuples(st.just("give"), _NAME, st.integers(0, 2**20))


_MARK = st.one_of(
    st.tuples(st.just("launch"), _NAME, st.sampled_from([None, "smem=1B", "<<<1,1,1>>> smem=0B", HOSTILE])),
    st.tuples(st.just("needs"), _NAME),
    st.tuples(st.just("mark"), st.sampled_from(["a→b", "b→a", "a"]), st.sampled_from([6, 7, 8])),
)


@st.composite
def programs(
    draw: st.DrawFn, *, given: bool = True, room: bool = True, whole: bool = True, marks: bool = False
) -> MadeUp:
    """Draw a random worker.

    Args:
        draw: the function of Hypothesis.
        marks: whether the worker may have launches, transfers and needs.
        given: whether times may be given.
        room: whether paths may run out.
        whole: whether every span has ended.
    """
    worker = MadeUp(
        service=draw(st.sampled_from(["api", "batch"])),
        tick_ns=draw(st.sampled_from([0.5, 1.0, 2.0])),  # powers of two, so that no sum is rounded
        room=draw(st.integers(2, 8)) if room else 1024,
    )
    steps = (_STEP | _GIVE if given else _STEP) | (_MARK if marks else st.nothing())
    for name, *arguments in draw(st.lists(steps, max_size=30)):
        if name != "end" or worker.stack:
            getattr(worker, name)(*arguments)
    while whole and worker.stack:
        worker.end()
    return worker


def named(made: list[MadeUp]) -> list[Worker]:
    return [each.worker(f"{each.service}/{number}") for number, each in enumerate(made)]
