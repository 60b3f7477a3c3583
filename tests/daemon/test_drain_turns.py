"""Which segments a tick drains.

Cheap segments are always drained. Costly segments take turns, within the limit of a tick.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest
from rings import Rings, events, rings, spans

from brickd.daemon import drain_order
from brickd.daemon.attachment import Attached
from brickd.daemon.drain_order import DrainResult, DrainTurns
from brickd.model.kernel_sources.store import Sources
from brickd.model.retained_workers import RetainedWorker
from brickd.shm.segment import Segment


@contextmanager
def segments(many: int) -> Iterator[tuple[list[Rings], list[Attached]]]:
    """Create segments whose lane was read once."""
    with ExitStack() as opened:
        made = [opened.enter_context(rings(span_slots=64, event_slots=64)) for _ in range(many)]
        attached = [
            Attached(Segment(str(number), r.fd), r.drain(), RetainedWorker(), Sources(), 0, 0)
            for number, r in enumerate(made)
        ]
        for r in made:
            r.move(0, "span", 0)
        yield made, attached


def ticked(order: DrainTurns, goes_on: Callable[[], bool] = lambda: True) -> list[str]:
    """Run a tick; return the names of the drained segments."""
    found: list[DrainResult] = []
    order.tick(found.append, goes_on)
    return [each.each.segment.name for each in found]


def write_event(made: list[Rings]) -> None:
    for r in made:
        r.add(0, "event", events({"sequence": r.heads.get((0, "event"), 0) + 1}))


def fill(r: Rings) -> None:
    head = r.heads.get((0, "span"), 0)
    r.add(0, "span", spans(*({"sequence": head + n + 1} for n in range(64))))


def test_all_segments_are_drained_if_a_tick_has_time() -> None:
    with segments(4) as (made, attached):
        order = DrainTurns(attached)
        write_event(made)
        assert ticked(order) == ["0", "1", "2", "3"]
        assert not order.unreached


def quiet_bytes(order: DrainTurns) -> int:
    """Return the number of bytes that a tick reads from a segment with one event."""
    before = order.order[0].drain.read
    ticked(order)
    return order.order[0].drain.read - before


@pytest.mark.parametrize("costly", [0, 1, 2, 3])
def test_cheap_segments_are_drained_in_every_tick_and_costly_ones_in_turns(
    monkeypatch: pytest.MonkeyPatch, costly: int
) -> None:
    monkeypatch.setattr(drain_order, "PIECE_BYTES", 1)
    with segments(6) as (made, attached):
        order, heavy = DrainTurns(attached), [made[number] for number in (costly, 4, 5)]
        cheap = [r for r in made if r not in heavy]
        write_event(made)
        quiet = quiet_bytes(order)
        for r in heavy:
            fill(r)
        ticked(order)
        monkeypatch.setattr(drain_order, "TICK_BYTES", 6 * quiet + 1)
        order.arrange()
        seen = []
        for _ in range(6):
            write_event(cheap)
            for r in heavy:
                if r.heads[0, "span"] == attached[made.index(r)].drain.cursors()[0][0]:
                    fill(r)
                    write_event([r])
            taken = ticked(order)
            assert taken[:3] == [str(made.index(r)) for r in cheap]
            seen += taken[3:]
            assert len(order.unreached) == 2
        assert seen == [str(costly), "4", "5"] * 2, "no segment waits forever"


def test_the_cheapest_segments_up_to_half_of_a_tick_are_cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drain_order, "PIECE_BYTES", 1)
    with segments(3) as (made, attached):
        order = DrainTurns(attached)
        write_event(made)
        quiet = quiet_bytes(order)

        def unreached(limit: int) -> list[str]:
            """Let a tick read a full ring of the first segment.

            Return the segments that the next tick, with this limit, does not reach.
            """
            fill(made[0])
            write_event(made[1:])
            monkeypatch.setattr(drain_order, "TICK_BYTES", 1 << 30)
            ticked(order)
            monkeypatch.setattr(drain_order, "TICK_BYTES", limit)
            order.arrange()
            write_event(made)
            ticked(order)
            return [each.segment.name for each in order.unreached]

        assert unreached(1) == ["2", "0"]
        assert unreached(4 * quiet) == []
        assert order.order[-1] is attached[0], "the costly segment is the last"
        fill(made[1])
        ticked(order)
        order.arrange()
        assert order.order[-1] is attached[1], "the other segment is cheap again"


def test_segments_drained_in_every_tick_take_at_most_half_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drain_order, "PIECE_BYTES", 1)
    with segments(3) as (made, attached):
        order = DrainTurns(attached)
        write_event(made)
        monkeypatch.setattr(drain_order, "TICK_BYTES", 4 * quiet_bytes(order))
        order.arrange()
        times = iter([True, False])
        write_event(made)
        assert ticked(order, lambda: next(times)) == ["0", "1"]
        write_event(made)
        assert ticked(order) == ["0", "1", "2"], "the third segment was not reached, so it comes last in the next order"


def test_a_tick_stops_after_a_piece_when_its_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drain_order, "PIECE_BYTES", 1)
    with segments(3) as (made, attached):
        order = DrainTurns(attached)
        write_event(made)
        assert ticked(order, lambda: False) == ["0"]
        assert order.unreached == attached[1:]
        assert ticked(order, lambda: False) == ["1"]
        assert ticked(order) == ["2"]
        assert not order.unreached
