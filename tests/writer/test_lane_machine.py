"""A real lane and its model: after every call, a reader in another process finds the content that the model predicts.

The writer runs in its own process (tests/native/lane.c), with a clock that the test sets, and rings of four and of
sixteen slots. This process is the reader and the consumer: it opens the segment, sends requests in the control page and
moves the tails.
"""

from __future__ import annotations

import os
import struct
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dtypes
import pytest
import sandbox
from conftest import SHM
from faults import program
from forge import U64, field, place, rows
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from lane_model import FINALIZE, LAYER_MAX, MEASURED, OFF, SPANS, UNNAMED, Lane, Ring
from lane_model import STEP as STEP_KIND

from brickd.errors import SegmentRefused
from brickd.shm import records
from brickd.shm.ledger import ledger_of
from brickd.shm.segment import open_segment
from brickd.shm.segment_copy import Reading

PATHS, SLOTS, EVENT_SLOTS, BRICKS = 64, 4, 16, 5

LAYER = st.integers(0, 3) | st.sampled_from([LAYER_MAX, LAYER_MAX + 1, 2**32 - 1])
KEY = st.integers(0, 2)
RING = st.sampled_from(["span", "event"])
STREAM = st.sampled_from([0, 1, 2**47 + 64])
BRICK = st.integers(0, BRICKS - 1) | st.just(UNNAMED)
STEP = st.none() | st.integers(0, 2**63 - 1)
AMOUNT = st.sampled_from([0, 1, 7, 2**48, 2**48 + 1, U64])
TICKS = st.sampled_from([0, 1, 31, 32, 38, 39, 1000, 123456, -5]) | st.integers(0, 10**7)


def own_prefix() -> str:
    """Return a prefix that only this process has. A constant of the module would not do: all processes that are forked
    for tests would have the same.
    """
    return f"{sandbox.PREFIX}lane-{os.getpid()}-"


class Writer:
    """The process that has the lane."""

    def __init__(self, binary: Path) -> None:
        self.prefix = f"{own_prefix()}{uuid.uuid4().hex[:4]}-"
        self.process = subprocess.Popen(
            [binary, self.prefix, "2", str(PATHS), str(SLOTS), str(EVENT_SLOTS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self.process.stdout is not None
        self.file = self.process.stdout.readline().decode().strip()
        self.consumer = os.open(SHM / self.file, os.O_RDWR)
        self.segment = open_segment(self.file)

    def ask(self, line: str) -> tuple[int, int, int]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()
        outcome, thread, number = self.process.stdout.readline().split()
        return int(outcome), int(thread), int(number)

    def close(self) -> None:
        self.process.communicate()
        assert self.process.returncode == 0
        self.segment.close()
        os.close(self.consumer)
        assert not (SHM / self.file).exists()


def entry(path: int, reading: Reading) -> dict[str, Any]:
    return rows(dtypes.summaries(reading.summaries)[path : path + 1])[0]


class LaneMachine(RuleBasedStateMachine):
    binary: Path

    @initialize(flags=st.sampled_from([SPANS, 0]))
    def start(self, flags: int) -> None:
        self.writer = Writer(self.binary)
        self.model = Lane(PATHS, SLOTS, EVENT_SLOTS)
        self.now, self.thread = 10**9, 0
        for number in range(1, BRICKS):
            assert self.writer.ask(f"name brick_{number}")[0] == number
        self.ask(flags)

    def teardown(self) -> None:
        if hasattr(self, "writer"):
            self.writer.close()

    def _same(self, wanted: int, line: str, number: int = 0) -> None:
        outcome, self.thread, reported = self.writer.ask(line)
        assert (outcome, reported) == (wanted, number)

    # ---- the worker

    @rule(brick=BRICK, key=KEY, step=STEP, ticks=TICKS)
    def begin(self, brick: int, key: int, step: int | None, ticks: int) -> None:
        self.now += ticks
        wanted = self.model.begin(brick, key, step, self.now)
        self._same(wanted, f"begin {brick} {key} {-1 if step is None else step} {self.now}")

    def _end(self, brick: int, key: int, elements: int, amount: int, ticks: int) -> None:
        self.now += ticks
        wanted = self.model.end(brick, key, elements, amount, self.now)
        self._same(wanted, f"end {brick} {key} {elements} {amount} {self.now}")

    @precondition(lambda self: self.model.order)
    @rule(elements=AMOUNT, amount=AMOUNT, ticks=TICKS)
    def end_the_youngest(self, elements: int, amount: int, ticks: int) -> None:
        (key,) = [
            key for key, stack in self.model.stacks.items() if any(f is self.model.order[-1] for f in stack.frames)
        ]
        self._end(self.model.order[-1].brick, key, elements, amount, ticks)

    @rule(brick=BRICK, key=KEY, elements=AMOUNT, amount=AMOUNT, ticks=TICKS)
    def end_any(self, brick: int, key: int, elements: int, amount: int, ticks: int) -> None:
        self._end(brick, key, elements, amount, ticks)

    @rule(brick=BRICK, key=KEY, many=st.integers(1, 2 * SLOTS + 1), ticks=TICKS)
    def record_some(self, brick: int, key: int, many: int, ticks: int) -> None:
        for _ in range(many):
            self.begin(brick, key, None, abs(ticks))
            self._end(brick, key, many, 0, ticks)

    @rule(bricks=st.lists(BRICK, min_size=2, max_size=8), key=KEY, ticks=TICKS, unended=st.integers(0, 3))
    def record_a_nest(self, bricks: list[int], key: int, ticks: int, unended: int) -> None:
        for brick in bricks:
            self.begin(brick, key, None, abs(ticks))
        for brick in reversed(bricks[: len(bricks) - unended]):
            self._end(brick, key, 1, 0, ticks)

    @rule(key=KEY, unended=st.integers(0, 2))
    def switch_off_and_on_within_a_span(self, key: int, unended: int) -> None:
        self.begin(1, key, None, 1)
        self.change_something("enable 0")
        self.record_a_given_time(4, key, 5, 1, 1)
        for _ in range(unended):
            self.begin(2, key, None, 1)
        self.change_something("enable 1")
        for brick in (3, *[2] * unended, 1):
            if brick == 3:
                self.begin(brick, key, None, 1)
            self._end(brick, key, 1, 0, 1)

    @rule(layers=st.sampled_from([1, 2, 20]), key=KEY)
    def record_a_model(self, layers: int, key: int) -> None:
        for layer in range(layers):
            self.layer_begin(layer, key)
            for brick in range(1, BRICKS):
                self.record_some(brick, key, 1, 100)
            self.layer_end(layer, key)

    @rule(brick=BRICK, key=KEY, ns=AMOUNT | TICKS.map(abs), elements=AMOUNT, amount=AMOUNT)
    def record_a_given_time(self, brick: int, key: int, ns: int, elements: int, amount: int) -> None:
        wanted = self.model.record(brick, key, ns, elements, amount, self.now)
        self._same(wanted, f"record {brick} {key} {ns} {elements} {amount} {self.now}")

    @rule(key=KEY, step=STEP, rows=AMOUNT, valid=AMOUNT, ticks=TICKS)
    def record_a_step(self, key: int, step: int | None, rows: int, valid: int, ticks: int) -> None:
        self.begin(1, key, step, 1)
        self.record_a_given_time(2, key, 17, 1, 1)
        self.defer(3, key, 0, None, rows, 1, 1)
        self.now += ticks
        wanted = self.model.end(1, key, rows, valid, self.now, STEP_KIND)
        self._same(wanted, f"stepend 1 {key} {rows} {valid} {self.now}")

    @rule(brick=BRICK, key=KEY, stream=STREAM, step=STEP, elements=AMOUNT, amount=AMOUNT, many=st.integers(1, 20))
    def defer(self, brick: int, key: int, stream: int, step: int | None, elements: int, amount: int, many: int) -> None:
        for _ in range(many):
            self.now += 1
            wanted, number = self.model.defer(brick, key, stream, step, elements, amount, self.now)
            reported = f"{-1 if step is None else step} {elements} {amount} {self.now}"
            self._same(wanted, f"defer {brick} {key} {stream} {reported}", number)

    @rule(number=st.integers(-1, 40).map(lambda n: (1 << 48) + n) | st.sampled_from([0, 1, 2 << 48, U64]), ns=AMOUNT)
    def measured(self, number: int, ns: int) -> None:
        self._same(self.model.measured(number, ns), f"measured {number} {ns} {self.now}")

    @rule(stream=st.none() | STREAM, ticks=TICKS)
    def finalize(self, stream: int | None, ticks: int) -> None:
        self.now += ticks
        self._same(self.model.finalize(stream, self.now), f"finalize {-1 if stream is None else stream} {self.now}")
        self._same(0, "pending", self.model.pending.total())

    @rule(stream=STREAM, key=KEY, consumed=st.booleans())
    def measure_and_finalize(self, stream: int, key: int, consumed: bool) -> None:
        for brick in range(1, BRICKS):
            self.defer(brick, key, stream, None, 1, 0, 1)
            self.measured((1 << 48) + self.model.given, 17)
        self.finalize(stream, 5)
        if consumed:
            self.move_a_tail_near_the_head("event", 0)

    @rule(off=st.sampled_from(["enable 0", OFF]), stream=st.none() | STREAM)
    def switch_off_while_work_pends(self, off: str | int, stream: int | None) -> None:
        self.defer(1, 0, 1, None, 1, 0, 1)
        self.change_something(off) if isinstance(off, str) else self.ask(off)
        self.defer(2, 0, 1, None, 1, 0, 1)
        self.measured((1 << 48) + self.model.given, 17)
        self.finalize(stream, 5)
        self.measured((1 << 48) + self.model.given, 17)
        self.change_something("enable 1")
        self.ask(0)

    @rule(key=KEY, ends=st.booleans())
    def borrow(self, key: int, ends: bool) -> None:
        self.begin(1, key, None, 1)
        self.model.borrow(key)
        self._same(0, f"borrow {key}")
        if ends:
            self._end(1, key, 0, 0, 1)

    @rule(layer=LAYER, key=KEY)
    def layer_begin(self, layer: int, key: int) -> None:
        self._same(self.model.layer(layer, key), f"layer {layer} {key}")

    @rule(layer=LAYER, key=KEY)
    def layer_end(self, layer: int, key: int) -> None:
        self._same(self.model.unlayer(layer, key), f"unlayer {layer} {key}")

    @rule(line=st.sampled_from(["enable 0", "enable 1", "exit", "thread"]))
    def change_something(self, line: str) -> None:
        if line.startswith("enable"):
            self.model.enabled = line == "enable 1"
        else:
            self.model.exit()
        self._same(0, line)

    # ---- the consumer

    @rule(flags=st.sampled_from([0, SPANS, SPANS, OFF, OFF | SPANS, 1 << 31, SPANS | 1 << 7]))
    def ask(self, flags: int) -> None:
        self.model.asked = flags
        offset, code, _ = field("control", "flags")
        os.pwrite(self.writer.consumer, struct.pack(f"<{code}", flags), self._at("control") + offset)

    def _at(self, record: str) -> int:
        return place(os.pread(self.writer.consumer, 4096, 0), record)

    def _ring_of(self, ring: str) -> Ring:
        return self.model.spans if ring == "span" else self.model.events

    def _move(self, ring: str, pair: tuple[int, int]) -> None:
        self._ring_of(ring).pair = pair
        os.pwrite(self.writer.consumer, struct.pack("<QQ", *pair), self._at("consumer") + field("consumer", ring)[0])

    @rule(ring=RING, back=st.integers(-1, SLOTS + 1))
    def move_a_tail_near_the_head(self, ring: str, back: int) -> None:
        position = (len(self._ring_of(ring).records) - back) & U64
        self._move(ring, (position, position ^ U64))

    @rule(times=st.integers(1, 3), key=KEY)
    def record_and_consume(self, times: int, key: int) -> None:
        for _ in range(times):
            self.record_some(1, key, SLOTS, 7)
            self.move_a_tail_near_the_head("span", 0)

    @rule(
        ring=RING,
        position=st.sampled_from([0, 1, 2**63, U64]) | st.integers(0, 40),
        wrong=st.sampled_from([0, 1, U64, 1 << 40]),
    )
    def move_a_tail_anywhere(self, ring: str, position: int, wrong: int) -> None:
        self._move(ring, (position, position ^ U64 ^ wrong))  # includes (0, 0), the value before any consumer wrote

    # ---- results

    @invariant()
    def the_reader_sees_what_the_model_expects(self) -> None:
        reading = self.writer.segment.read()
        self._lane(reading)
        self._totals(reading)
        self._rings()

    def _lane(self, reading: Reading) -> None:
        model = self.model
        lanes = {number: (lane, consumer) for number, lane, consumer in reading.lanes}
        assert list(lanes) == ([0] if model.counters["opened"] else [])
        if lanes:
            lane, consumer = lanes[0]
            assert {**lane} == {**model.line(), "thread": self.thread if model.joined else 0}
            assert (consumer["span"], consumer["event"]) == (model.spans.pair, model.events.pair)
        assert reading.process["names"] == BRICKS
        assert reading.process["paths"] == len(model.paths)
        ledger = ledger_of(reading)
        assert ledger.spans["unpublished"] == ledger.spans["no_lane"] == 0
        wanted = ("begun", "summarized", "abandoned", "unmatched")
        assert {n: ledger.spans[n] for n in wanted} == {n: model.counters[n] for n in wanted}
        assert ledger.spans["open"] == len(model.order)
        assert {n: c for n, c in ledger.rejected.items() if c} == {
            n: c for n, c in (("clock", model.rejected_clock), ("room", model.rejected_room)) if c
        }
        assert model.counters["span_attempts"] == len(model.spans.records) + ledger.details_dropped.total()
        assert model.counters["event_attempts"] == ledger.events["in_ring"] + ledger.events_dropped.total()

    def _totals(self, reading: Reading) -> None:
        model = self.model
        assert [(p.parent & 0xFFFF, p.name, p.layer, p.unit) for p in reading.paths if p] == [*model.paths]
        assert (reading.odd, reading.moving) == (0, 0)
        for number, summary in enumerate(model.summaries):
            wanted = {name: getattr(summary, name) for name in summary.__slots__ if name != "histogram"}
            assert entry(number, reading) == {**wanted, "histogram": {str(b): n for b, n in summary.histogram.items()}}

    def _rings(self) -> None:
        for events in (False, True):
            ring = self.model.events if events else self.model.spans
            if ring.oldest() is None:
                with pytest.raises(SegmentRefused):
                    self.writer.segment.ring(0, events=events)
                continue
            first, slots = self.writer.segment.ring(0, events=events)
            assert first == ring.oldest()
            found = records.events(slots)[0] if events else rows(dtypes.span_records(slots))
            assert found == ring.records[first:]
            reserved = [n for n, record in enumerate(found) if record["kind"] in (FINALIZE, MEASURED)]
            assert not any(any(slots[64 * n + 32 : 64 * n + 64]) for n in reserved), "the reserved bytes are zero"


@pytest.fixture
def machine(compiled: Callable[..., Path]) -> Iterator[type[LaneMachine]]:
    LaneMachine.binary = program(compiled, "lane")
    yield LaneMachine
    for file in SHM.glob(own_prefix() + "*"):
        file.unlink()


@pytest.fixture
def lane(machine: type[LaneMachine]) -> Iterator[LaneMachine]:
    """Yield a machine that the test controls directly."""
    made = machine()
    made.start(0)
    yield made
    made.the_reader_sees_what_the_model_expects()
    made.teardown()


@pytest.mark.ci
def test_a_layer_survives_a_span_begun_inside_while_recording_is_off(lane: LaneMachine) -> None:
    lane.layer_begin(1, 0)
    lane.begin(1, 1, None, 1)
    lane.change_something("enable 0")
    lane.begin(2, 0, None, 1)
    lane._end(1, 1, 0, 0, 1)
    lane._end(2, 0, 0, 0, 1)
    lane.change_something("enable 1")
    lane.layer_end(1, 0)
    lane.record_some(3, 0, 1, 1)
    assert lane.model.paths[-1] == (0xFFFF, 3, -1, 0), "a span after the end of a layer is in no layer"


def test_a_span_of_one_task_while_off_does_not_affect_another_task(lane: LaneMachine) -> None:
    lane.begin(1, 1, None, 1)
    lane.change_something("enable 0")
    lane.begin(2, 2, None, 1)
    lane._end(2, 2, 0, 0, 1)
    assert lane.model.counters["unmatched"] == 0


def test_an_end_reports_that_it_gave_its_thread_a_lane(lane: LaneMachine) -> None:
    lane._end(1, 0, 0, 0, 1)
    lane.change_something("thread")
    lane.layer_end(0, 0)
    assert lane.model.counters["opened"] == 2


def test_nested_spans_of_other_count_their_time_once(lane: LaneMachine) -> None:
    lane.record_a_model(20, 0)  # use up all paths
    lane.begin(0, 0, None, 1)
    lane.record_some(1, 0, 2, 10)
    lane._end(0, 0, 0, 0, 1)
    other = lane.model.summaries[0]
    assert (other.again, other.total - other.again) == (other.child, other.total - other.child)


def test_a_span_of_zero_ticks_counts_and_a_negative_one_is_rejected(lane: LaneMachine) -> None:
    lane.begin(1, 0, None, 1)
    lane._end(1, 0, 0, 0, 0)
    lane.begin(1, 0, None, 1)
    lane._end(1, 0, 0, 0, -1)
    summary = lane.model.summaries[1]
    assert (summary.count, summary.min, summary.max, lane.model.rejected_clock) == (1, 0, 0, 1)


def test_a_tail_is_accepted_up_to_one_ring_behind_the_head(lane: LaneMachine) -> None:
    lane.ask(SPANS)
    lane.record_and_consume(1, 0)
    lane.record_some(1, 0, SLOTS, 1)
    for back, refused in ((SLOTS + 1, 1), (SLOTS, 1)):
        lane.move_a_tail_near_the_head("span", back)
        lane.record_some(1, 0, 1, 1)
        lane.the_reader_sees_what_the_model_expects()
        assert lane.model.counters["tails_refused"] == refused


def test_a_tail_before_the_first_record_is_not_accepted(lane: LaneMachine) -> None:
    lane.defer(1, 0, 0, None, 0, 0, EVENT_SLOTS - EVENT_SLOTS // 8)
    lane.move_a_tail_near_the_head("event", EVENT_SLOTS - EVENT_SLOTS // 8 + 1)
    lane.defer(1, 0, 0, None, 0, 0, 1)
    assert lane.model.counters["tails_refused"] == 1


@pytest.mark.parametrize(("position", "wrong"), [(0, 1), (2, 1), (1, 1)])
def test_a_reader_takes_the_next_position_of_a_half_written_tail(lane: LaneMachine, position: int, wrong: int) -> None:
    lane.defer(1, 0, 0, None, 0, 0, 4)
    lane.move_a_tail_anywhere("event", position, wrong)
    lane.the_reader_sees_what_the_model_expects()
    assert lane.model.events.oldest() == (None if position == 1 else position + 1)


def test_the_highest_layer_is_accepted_and_the_next_number_is_not(lane: LaneMachine) -> None:
    for layer, brick in ((LAYER_MAX, 1), (LAYER_MAX + 1, 2)):
        lane.layer_begin(layer, 0)
        lane.record_some(brick, 0, 1, 1)
        lane.layer_end(layer, 0)
    assert [path[1:3] for path in lane.model.paths[1:]] == [(1, LAYER_MAX), (2, -1)]
    assert (lane.model.counters["amounts"], lane.model.counters["unmatched"]) == (1, 0)


def test_a_layer_is_not_confused_with_a_span_that_reuses_its_memory(lane: LaneMachine) -> None:
    lane.record_some(1, 0, 1, 1)
    lane.layer_begin(1, 0)
    lane._end(1, 0, 0, 0, 1)
    lane.layer_end(1, 0)
    assert lane.model.counters["unmatched"] == 1


def test_a_layer_passes_on_the_step_around_it(lane: LaneMachine) -> None:
    lane.ask(SPANS)
    lane.begin(1, 0, 7, 1)
    lane.layer_begin(1, 0)
    lane.record_some(2, 0, 1, 1)
    assert [each["step"] for each in lane.model.spans.records] == [7]


def test_a_layer_passes_on_a_folded_recursion(lane: LaneMachine) -> None:
    lane.layer_begin(1, 0)
    for brick in (1, 2, 1):
        lane.begin(brick, 0, None, 1)
    lane.layer_begin(1, 0)
    lane.record_some(2, 0, 1, 10)
    assert [summary.again for summary in lane.model.summaries if summary.count] == [10]


def test_a_key_borrowed_for_one_span_is_held_for_the_next(lane: LaneMachine) -> None:
    lane.borrow(0, ends=True)
    lane.record_some(1, 0, 1, 1)
    lane.borrow(0, ends=True)
    lane.layer_begin(1, 0)
    lane.layer_end(1, 0)


def test_when_the_middle_of_three_keys_ends_the_newest_stays_current(lane: LaneMachine) -> None:
    for brick in (1, 2, 3):
        lane.begin(brick, brick, None, 1)
    lane._end(2, 2, 0, 0, 1)
    lane.the_reader_sees_what_the_model_expects()
    lane._end(3, 3, 0, 0, 1)


def test_the_longest_measurement_is_2_to_the_48_ns(lane: LaneMachine) -> None:
    for ns, refused in ((2**48, 0), (2**48 + 1, 1)):
        lane.defer(1, 0, 0, None, 0, 0, 1)
        lane.measured((1 << 48) + lane.model.given, ns)
        lane.the_reader_sees_what_the_model_expects()
        assert lane.model.counters["amounts"] == refused


HEALTHY = [HealthCheck.too_slow, HealthCheck.filter_too_much]


def run(machine: type[LaneMachine], examples: int, steps: int, *phases: Phase) -> None:
    wanted = settings(
        derandomize=True,
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=HEALTHY,
        phases=(Phase.generate, *phases),
    )
    run_state_machine_as_test(machine, settings=wanted)


@pytest.mark.ci
def test_a_lane_behaves_like_its_model(machine: type[LaneMachine]) -> None:
    # A failure is not shrunk to a smaller example here, because this takes minutes. The slow test does this.
    run(machine, settings().max_examples, 40)


@pytest.mark.nightly
def test_a_lane_behaves_like_its_model_in_long_runs(machine: type[LaneMachine]) -> None:
    run(machine, 600, 80, Phase.shrink)
