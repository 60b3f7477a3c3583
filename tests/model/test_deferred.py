"""Deferred work: which finalize closes which start, for any order of reading the lanes and any restarts of the
daemon."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

import dtypes
import pytest
from hypothesis import given
from hypothesis import strategies as st

from brickd.model import deferred
from brickd.model.deferred import Deferred
from brickd.shm import _reader
from brickd.shm.clock import Now

_RECORD = struct.Struct("<QIHH6Q")


def long_ago() -> Now:
    """Return a time that is later than all work in these tests."""
    return Now(1.0, 2**62)


def defer(start: int, stream: int = 0, *, id: int, path: int = 1, elements: int = 0, amount: int = 0) -> bytes:
    return _RECORD.pack(1, path, 1, _reader.KIND_DEFER, start, stream, id, 0, elements, amount)


def finalize(ticks: int, stream: int | None = None) -> bytes:
    return _RECORD.pack(1, stream is None, 1, _reader.KIND_FINALIZE, ticks, stream or 0, 0, 0, 0, 0)


def measured(id: int, ns: int) -> bytes:
    return _RECORD.pack(1, 0, 1, _reader.KIND_MEASURED, id, ns, 0, 0, 0, 0)


def passes(*each: bytes) -> Deferred:
    """Make one pass for each argument, and then empty passes that settle the work. Return the deferred work."""
    work = Deferred()
    for records in (*each, b"", b"", b""):
        work.take(records, long_ago)
        work.settle(1.0, complete=True)
    return work


def total(table: _reader.Summaries, path: int = 1) -> tuple[int, int]:
    """Return count and total of a path."""
    rows = dtypes.summaries(table.tobytes())
    return (int(rows[path]["count"]), int(rows[path]["total"])) if path < len(rows) else (0, 0)


def account(work: Deferred) -> tuple[int, int, int, int]:
    counts = work.counts
    assert counts["started"] == counts["measured"] + counts["bounded"] + counts["orphaned"] + work.pending
    return counts["measured"], counts["bounded"], counts["orphaned"], work.pending


# ---- single rules


@pytest.mark.parametrize("count", [1, 2, 10, 100])
def test_bricks_finalized_together_sum_to_the_elapsed_time(count: int) -> None:
    work = passes(b"".join(defer(100 + 10 * n, id=n + 1) for n in range(count)) + finalize(5000))
    assert total(work.bound) == (count, 4900)
    assert total(work.latency) == (count, sum(4900 - 10 * n for n in range(count)))
    assert account(work) == (0, count, 0, 0)


def test_a_measurement_is_a_duration_and_not_a_bound() -> None:
    work = passes(defer(100, id=1) + defer(200, id=2) + measured(1, 17) + finalize(300))
    assert (total(work.measured), total(work.bound)) == ((1, 17), (1, 100))


SECOND = 10**9


@pytest.mark.parametrize(
    ("now", "ns", "counts"),
    [
        (Now(1.0, 100), SECOND, True),
        (Now(1.0, 100), SECOND + 1, False),
        (Now(1.0, 100 + SECOND), 2 * SECOND, True),
        (Now(1.0, 100 + SECOND), 2 * SECOND + 1, False),
        (Now(2.0, 100 + SECOND), 4 * SECOND, True),
        (Now(2.0, 100 + SECOND), 4 * SECOND + 1, False),
        (Now(1.0, 0), 2**63 - 1, False),
        (Now(1.0, None), 2**63 - 1, True),
    ],
)
@pytest.mark.parametrize("first", ["start", "measurement"])
def test_a_measurement_longer_than_possible_is_counted_and_its_start_bounded(
    now: Now, ns: int, counts: bool, first: str
) -> None:
    reported = [defer(100, id=1), measured(1, ns)]
    work = Deferred()
    for records in (*(reported if first == "start" else reported[::-1]), finalize(300), b"", b""):
        work.take(records, lambda: now)
        work.settle(1.0, complete=False)
    for _ in range(2):
        work.settle(1.0, complete=True)
    assert account(work) == (counts, not counts, 0, 0)
    assert work.counts["unmatched"] == (not counts)
    assert (total(work.measured), total(work.bound)) == (((1, ns), (0, 0)) if counts else ((0, 0), (1, 200)))


def test_a_measured_brick_still_ends_the_starts_before_it() -> None:
    work = passes(defer(100, id=1) + defer(150, id=2) + measured(2, 40) + finalize(300))
    assert (total(work.measured), total(work.bound)) == ((1, 40), (1, 50))


def test_a_finalize_of_one_stream_leaves_other_streams_waiting() -> None:
    work = passes(defer(100, 1, id=1) + defer(100, 2, id=2) + finalize(200, 1))
    assert account(work) == (0, 1, 0, 1)
    assert account(passes(defer(100, 1, id=1) + defer(100, 2, id=2) + finalize(200))) == (0, 2, 0, 0)


def test_a_start_after_the_finalize_waits_for_the_next_one() -> None:
    work = passes(defer(100, id=1) + finalize(200) + defer(250, id=2))
    assert account(work) == (0, 1, 0, 1)
    work = passes(defer(100, id=1) + finalize(200) + defer(250, id=2) + finalize(270))
    assert total(work.bound) == (2, 120), "the time between a sync and the next start belongs to no brick"


def test_a_finalize_that_is_read_before_its_starts_closes_them() -> None:
    work = passes(finalize(1000), defer(100, id=1) + defer(400, id=2))
    assert total(work.bound) == (2, 900)
    assert not work.counts["late"]


def test_an_earlier_finalize_that_is_read_later_closes_its_own_starts() -> None:
    assert total(passes(defer(100, id=1) + finalize(500), finalize(200)).bound) == (1, 100)


def test_a_late_start_after_its_finalize_settled_is_counted_without_time() -> None:
    work = passes(defer(100, id=1) + finalize(500), b"", b"", defer(300, id=2))
    assert total(work.bound) == (2, 400)
    assert work.counts["late"] == 1
    assert account(work) == (0, 2, 0, 0)


def test_a_repeated_or_unneeded_finalize_changes_nothing() -> None:
    work = passes(finalize(50) + defer(100, id=1) + finalize(200) + finalize(200), finalize(300), finalize(1, 9))
    assert total(work.bound) == (1, 100)
    assert account(work) == (0, 1, 0, 0)


@pytest.mark.ci
def test_thousands_of_finalizes_close_every_waiting_start_and_idle_stream() -> None:
    streams, few = deferred.STREAMS_MAX, range(0, deferred.STREAMS_MAX, 64)
    idle = b"".join(finalize(1, n) for n in range(streams))
    starts = b"".join(defer(100, n, id=n + 1) for n in few)
    ends = b"".join(finalize(5_000 + n) for n in range(10_000))
    after = b"".join(defer(ticks, n + 1, id=ticks + n) for n in few for ticks in (10_000, 20_000))
    work = passes(idle, starts, ends, b"", b"", after)
    assert work.counts["finalized"] == streams + 10_000
    assert account(work) == (0, 2 * len(few), 0, len(few))
    assert (total(work.bound), work.counts["late"]) == ((2 * len(few), 4_900 * len(few)), len(few))
    assert total(work.latency) == (2 * len(few), (4_900 + 4_999) * len(few))


def test_a_measurement_without_a_start_is_counted() -> None:
    work = passes(measured(5, 10), defer(100, id=1) + finalize(200), b"", measured(1, 10))
    assert (work.counts["unmatched"], account(work)) == (2, (0, 1, 0, 0))


def test_a_measurement_that_is_read_before_its_start_counts() -> None:
    assert total(passes(measured(1, 10) + finalize(200), defer(100, id=1)).measured) == (1, 10)


def test_waiting_work_of_a_dead_worker_is_orphaned() -> None:
    work = passes(defer(100, id=1) + defer(200, id=2) + measured(2, 5))
    work.orphan()
    assert account(work) == (1, 0, 1, 0)


def test_a_repeated_id_is_refused() -> None:
    work = passes(defer(100, id=1) + defer(120, id=1) + finalize(200))
    assert (total(work.bound), work.counts["refused"]) == ((1, 100), 1)


@pytest.mark.ci
def test_waiting_work_above_the_limit_drops_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deferred, "WAITING_MAX", 64)
    monkeypatch.setattr(deferred, "STREAMS_MAX", 16)
    work = Deferred()
    for n in range(1000):
        work.take(defer(n, n % 100, id=n + 1) + finalize(0, 5000 + n), long_ago)
        work.settle(1.0, complete=True)
        assert work.pending <= 64
    measured_, bounded, orphaned, waiting = account(work)
    assert (measured_, bounded, orphaned + waiting) == (0, 0, 1000)
    work.take(finalize(2000), long_ago)
    for _ in range(3):
        work.settle(1.0, complete=True)
    assert account(work) == (0, waiting, orphaned, 0)
    assert total(work.latency)[1] == sum(2000 - n for n in range(1000 - waiting, 1000))


def test_ticks_are_converted_by_their_length() -> None:
    work = Deferred()
    work.take(defer(100, id=1) + finalize(300), long_ago)
    for _ in range(2):
        work.settle(0.4, complete=True)
    assert (total(work.bound), total(work.latency)) == ((1, 80), (1, 80))


def test_impossible_times_saturate() -> None:
    work = Deferred()
    work.take(defer(0, id=1) + defer(0, 1, id=2) + finalize(2**63 - 1), long_ago)
    for _ in range(2):
        work.settle(40.0, complete=True)  # 40 ns is the greatest length of a tick
    assert (total(work.bound), total(work.latency)) == ((2, 2**64 - 1), (2, 2**64 - 1))


def test_deferred_work_of_another_segment_of_the_process_continues() -> None:
    lost, here = Deferred(), Deferred()
    lost.take(
        defer(100, 3, id=1) + defer(150, 3, id=2) + measured(2, 9) + defer(10, 4, id=4) + finalize(20, 4), long_ago
    )
    here.take(defer(200, 3, id=3) + finalize(300, 3), long_ago)
    here.absorb(lost)
    for _ in range(3):
        here.settle(1.0, complete=True)
    assert (total(here.bound), total(here.measured)) == ((3, 50 + 100 + 10), (1, 9))
    assert account(here) == (1, 3, 0, 0)


# ---- random histories


@dataclass
class History:
    """The records of a worker's threads, each with its lane, in the order they became readable."""

    records: list[tuple[int, bytes]] = field(default_factory=list)
    starts: list[tuple[int, int, int]] = field(default_factory=list)  # the ticks, the stream and the id of each start
    syncs: list[tuple[int, int | None]] = field(default_factory=list)
    measurements: dict[int, int] = field(default_factory=dict)

    def closes(self, ticks: int, stream: int) -> list[int]:
        """Return the syncs after a start of the stream, in order."""
        return sorted(t for t, which in self.syncs if which in (None, stream) and t >= ticks)

    def streams(self) -> list[tuple[int, list[int]]]:
        """Return the first start of each stream, and the syncs of the stream."""
        firsts = {stream: min(t for t, s, _ in self.starts if s == stream) for _, stream, _ in self.starts}
        return [(first, self.closes(first, stream)) for stream, first in firsts.items()]

    def expected(self) -> tuple[int, int, int]:
        """Return the number of starts that have only bounds, the sum of their bounds and the sum of their latencies."""
        count = parts = latencies = 0
        for ticks, stream, id in self.starts:
            syncs = self.closes(ticks, stream)
            if id not in self.measurements and syncs:
                after = [t for t, s, i in self.starts if s == stream and (t, i) > (ticks, id)]
                count += 1
                parts += min([syncs[0], *after]) - ticks
                latencies += syncs[0] - ticks
        return count, parts, latencies


def history(chance: random.Random, lanes: int, length: int, *, slow: bool) -> History:
    """Draw a random history; with `slow`, a thread may read its clock long before its record is readable."""
    found, now = History(), 0
    for _ in range(length):
        now += chance.randint(0, 20)
        lane, stream, ticks = chance.randrange(lanes), chance.randrange(3), now
        if slow and chance.random() < 0.2:
            ticks = max(0, now - chance.randint(0, 100))
        draw = chance.random()
        if draw < 0.6:
            id = len(found.starts) + 1
            found.starts.append((ticks, stream, id))
            found.records.append((lane, defer(ticks, stream, id=id)))
        elif draw < 0.75 and (open_ := [id for *start, id in found.starts[-5:] if not found.closes(*start)]):
            id = chance.choice(open_)
            if id not in found.measurements:
                found.measurements[id] = chance.randint(0, 50)
                found.records.append((lane, measured(id, found.measurements[id])))
        else:
            which = None if chance.random() < 0.3 else stream
            found.syncs.append((ticks, which))
            found.records.append((lane, finalize(ticks, which)))
    return found


def reads(chance: random.Random, of: History, lanes: int) -> Iterator[bytes]:
    """Yield passes over the lanes.

    A pass reads each lane up to a position at which the lane ended at some time during the pass.
    """
    seen, began = [0] * lanes, 0
    while began < len(of.records):
        ended = min(len(of.records), began + chance.randint(0, 12))
        order = list(range(lanes))
        chance.shuffle(order)
        records = b""
        for lane in order:
            head = chance.randint(began, ended)
            records += b"".join(record for of_lane, record in of.records[seen[lane] : head] if of_lane == lane)
            seen[lane] = max(seen[lane], head)
        yield records
        began = ended
    yield b"".join(record for lane in range(lanes) for of_lane, record in of.records[seen[lane] :] if of_lane == lane)


def judge(seed: int, *, slow: bool, restarts: bool) -> None:
    chance = random.Random(seed)
    lanes = chance.randint(1, 4)
    of = history(chance, lanes, chance.randint(0, 60), slow=slow)
    work = Deferred()
    for records in (*reads(chance, of, lanes), b"", b"", b""):
        work.take(records, long_ago)
        work.settle(1.0, complete=True)
        account(work)
        if restarts and chance.random() < 0.5:
            work = Deferred.of(json.loads("".join(work.pieces())))
    assert work.settled
    assert (work.counts["started"], work.counts["unmatched"]) == (len(of.starts), 0)
    assert total(work.measured) == (len(of.measurements), sum(of.measurements.values()))
    count, parts, latencies = of.expected()
    assert work.counts["bounded"] == count
    if slow:  # a record that comes late gets no time that other work already has
        spent = sum(max(ends) - begin for begin, ends in of.streams() if ends)
        assert total(work.bound)[1] <= spent
    else:
        assert not work.counts["late"]
        assert (total(work.bound)[1], total(work.latency)[1]) == (parts, latencies)


@given(st.integers(0, 2**64), st.booleans(), st.booleans())
def test_any_history_gives_the_same_result_in_any_reading_order(seed: int, slow: bool, restarts: bool) -> None:
    judge(seed, slow=slow, restarts=restarts)


def test_daemons_that_run_one_pass_settle_their_records() -> None:
    work = Deferred()
    for n in range(20):
        work.take(defer(10 * n, id=n + 1) + finalize(10 * n + 5), long_ago)
        work.settle(1.0, complete=True)
        work = Deferred.of(json.loads("".join(work.pieces())))
        assert account(work) == (0, n, 0, 1), "all starts except the last one"


def test_the_model_detects_a_finalize_that_settles_one_pass_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    settle = Deferred.settle

    def hasty(self: Deferred, tick_ns: float, *, complete: bool) -> None:
        settle(self, tick_ns, complete=complete)
        settle(self, tick_ns, complete=complete)

    monkeypatch.setattr(Deferred, "settle", hasty)

    def judge_many() -> None:
        for seed in range(100):
            judge(seed, slow=False, restarts=False)

    with pytest.raises(AssertionError):
        judge_many()
