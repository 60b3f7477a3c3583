"""Windows: which earlier totals are subtracted from the totals of a path, even if the index of the path changes."""

from __future__ import annotations

import dtypes
from made_up_workers import MadeUp
from test_windows import after, merged_workers, snapshot, work, worker

from brickd.model.deferred import Deferred
from brickd.model.deferred_overlay import laid_over, overlay
from brickd.model.windows import since
from brickd.model.workers import Worker
from brickd.shm import _reader


def bounded(made: MadeUp, *bounds: tuple[int, int, int]) -> Worker:
    """Return a worker with deferred work that has only bounds.

    Each of `bounds` has a path, a part of the time, and a latency.
    """
    one, deferred = worker(made, 1), Deferred()
    for path, part_ns, latency_ns in bounds:
        deferred.bound.add(path, part_ns, 1, 0)
        deferred.latency.add(path, latency_ns, 0, 0)
    deferred.counts["bounded"] = len(bounds)
    return one._replace(reading=laid_over(one.reading, overlay(deferred)))


def test_windowed_bounds_and_latencies_do_not_depend_on_new_path_numbers() -> None:
    made = MadeUp()
    gemm = made.mark("gemm", _reader.UNIT_DEFERRED)
    began = snapshot(bounded(made, (gemm, 10, 100)))
    work(made, "has the number that the bounds had", 1)
    (found,) = since((began,), [bounded(made, (gemm, 10, 100), (gemm, 5, 70))])
    place = [path is not None and path.unit == _reader.UNIT_BOUND for path in found.reading.paths].index(True)
    for table, total in ((found.reading.summaries, 5), (found.reading.latency, 70)):
        row = dtypes.summaries(bytes(table))[place]
        assert (row["count"], row["total"]) == (1, total)


def stack(made: MadeUp, ticks: int, *names: str) -> None:
    """Record nested spans; the innermost takes this number of ticks."""
    for name in names:
        made.begin(name, layer=len(name))
    made.spend(ticks)
    for _ in names:
        made.end()


def test_a_path_is_subtracted_by_its_whole_chain_of_parents() -> None:
    first, second = MadeUp(), MadeUp()
    stack(first, 5, "a", "b")
    stack(first, 1, "b")
    stack(second, 7, "b")
    stack(second, 9, "c", "a", "b")
    stack(second, 3, "a", "b")
    stack(second, 2, "c", "bb")
    began = snapshot(worker(first, 1), worker(second, 2))
    stack(second, 20, "a", "b")
    stack(second, 40, "c", "bb")
    for order in ((first, second), (second, first)):
        gone = [worker(made, 1 if made is first else 2, alive=False) for made in order]
        (found,) = since((began,), [merged_workers(*gone)])
        rows = dtypes.summaries(bytes(found.reading.summaries))
        assert sorted(rows["total"][rows["count"] > 0]) == [20, 20, 40, 40]
        assert int(rows["count"].sum()) == 4


def test_nothing_is_subtracted_for_a_path_that_no_longer_exists() -> None:
    before, now = MadeUp(), MadeUp(room=2)
    work(before, "a", 5)
    work(before, "b", 7)
    work(now, "a", 5, 6)
    work(now, "c", 9, 9)
    assert after(snapshot(worker(before, 1)), worker(now, 1)) == {"a": (1, 1, 6), "other": (2, 2, 18)}
