"""The cases that record a span with brickd from Python, and the control cases.

The measurements of time and of instructions select these cases by name. `span_cases` opens a segment in this process
and consumes its records, because the ring would be full after 4,096 spans. The cases of other tools are in `peers`.
"""

from __future__ import annotations

import importlib
import os
import struct
from collections.abc import Callable
from pathlib import Path

import brick_agent as brick
from brick_agent import _core

from benchmarks.method import Case
from brickd.shm import _reader
from brickd.shm.segment import Segment

CONTROL_OFFSET = 4096
_CONSUMER_OFFSET = 8192
_TAIL = struct.Struct("<QQ")

CLOCKS = {1: "tsc", 2: "cntvct", 3: "CLOCK_MONOTONIC_RAW"}
TSC = 1

WITH = "with b:"
WITH_CONTROL = "with control:"
WITH_EMPTY = "with empty:"
START = "b.start(); b.stop()"
START_CONTROL = "control.start(); control.stop()"
AMOUNTS = "with b(elements=n):"
BY_NAME = "with brick.span(name):"
NESTED = "with b: inside a span"
RINGED = "with b: ring on"
DEFERRED = "b.defer()"
PORTED = "p.stop_brick(p.start_brick(id))"
PORTED_OFF = "p.stop_brick(p.start_brick(id)): p disabled"
PORTED_EMPTY = "empty.stop_brick(empty.start_brick(id))"
OFF = "with b: after disable()"
OFF_CONSUMER = "with b: consumer says off"
OFF_ENVIRONMENT = "with b: BRICKD=0"


class _Consumer:
    """Consumes the records of this process's own segment."""

    def __init__(self) -> None:
        self._fd = os.open(Path(_reader.DIRECTORY) / _core._segment_name(), os.O_RDWR)
        self._segment = Segment(_core._segment_name(), self._fd)
        self.clock = self._segment.header["clock"]
        self.slots = self._segment.header["span_slots"]
        # deferred starts may fill only seven eighths of the event ring
        self.starts = self._segment.header["event_slots"] * 7 // 8

    def make_room(self) -> None:
        """Consume all records in the rings."""
        for lane, line, _ in _reader.SegmentCopier(self._fd).lanes():
            tails = (_TAIL.pack(head, head ^ (1 << 64) - 1) for head in (line["span_head"], line["event_head"]))
            os.pwrite(self._fd, b"".join(tails), _CONSUMER_OFFSET + 64 * lane)

    def ring_on(self) -> None:
        """Make room in the span ring, and turn span detail on."""
        self.make_room()
        os.pwrite(self._fd, struct.pack("<I", _reader.CONTROL_SPANS), CONTROL_OFFSET)

    def off(self) -> None:
        """Turn recording off."""
        os.pwrite(self._fd, struct.pack("<I", _reader.CONTROL_OFF), CONTROL_OFFSET)

    def usual(self) -> None:
        """Record spans without their details. This is the default."""
        os.pwrite(self._fd, struct.pack("<I", 0), CONTROL_OFFSET)


def _opened() -> _Consumer:
    if not brick.init("bench"):
        raise RuntimeError("no segment could be opened: see the line that brick_agent wrote")
    return _Consumer()


def agent_clock() -> int:
    """Return the clock that the agent selected on this machine, a BRICK_CLOCK_* number."""
    return _opened().clock


def _empty_case() -> Case:
    return Case(WITH_EMPTY, "with b: pass", {"b": importlib.import_module("control_empty").brick()})


def span_cases() -> list[Case]:
    """Return brickd's cases and the control cases. The modules compiled from control.c must be importable."""
    consumer = _opened()
    b, outer = brick.brick("b"), brick.brick("outer")

    def started() -> int:
        consumer.make_room()
        # the lower 48 bits of an id are the number of the deferred start, from 1
        return (b.defer() & (1 << 48) - 1) - 1

    control: Callable[[], object] = importlib.import_module("control_clock").brick
    return [
        Case(WITH, "with b: pass", {"b": b}),
        Case(WITH_CONTROL, "with b: pass", {"b": control()}),
        _empty_case(),
        Case(START, START, {"b": b}),
        Case(START_CONTROL, START, {"b": control()}),
        Case(AMOUNTS, "with b(elements=n): pass", {"b": b, "n": 4096}),
        Case(BY_NAME, "with brick.span(name): pass", {"brick": brick, "name": "b"}),
        Case(NESTED, "with b: pass", {"b": b}, outer.start, outer.stop),
        Case(RINGED, "with b: pass", {"b": b}, consumer.ring_on, consumer.usual, batch_max=consumer.slots),
        Case(DEFERRED, DEFERRED, {"b": b}, consumer.make_room, brick.finalize, consumer.starts, None, started),
        Case(PORTED, PORTED, {"p": brick.BrickProfiler.enabled(), "id": brick.BrickId.RmsNorm}),
        Case(PORTED_OFF, PORTED, {"p": brick.BrickProfiler(), "id": brick.BrickId.RmsNorm}),
        Case(
            PORTED_EMPTY, PORTED, {"p": importlib.import_module("control_empty").brick(), "id": brick.BrickId.RmsNorm}
        ),
        Case(OFF, "with b: pass", {"b": b}, brick.disable, brick.enable),
        Case(OFF_CONSUMER, "with b: pass", {"b": b}, consumer.off, consumer.usual),
    ]


def off_cases() -> list[Case]:
    """Return the cases that measure what a span still costs if BRICKD=0 is set before Python starts."""
    if os.environ.get("BRICKD") != "0":
        raise RuntimeError(f"BRICKD is {os.environ.get('BRICKD')!r}, expected '0'")
    return [Case(OFF_ENVIRONMENT, "with b: pass", {"b": brick.brick("b")}), _empty_case()]
