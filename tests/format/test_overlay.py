"""Deferred work in totals: bounds have a row of their own, and are never added to measured times."""

from __future__ import annotations

from dataclasses import replace

from made_up_workers import MadeUp
from test_deferred import defer, finalize, measured, passes

from brickd.model.brick_totals import bricks
from brickd.model.calltree.tree import tree
from brickd.model.deferred_overlay import laid_over, overlay
from brickd.model.workers import Worker
from brickd.shm import _reader
from brickd.shm.ledger import ledger_of
from brickd.shm.segment_copy import CallPath, Reading


def host() -> Reading:
    """Return a worker with a `forward` of 1,000 ticks, which contains a deferred `gemm` and a `gemm` of 50 ticks on the
    host.
    """
    made = MadeUp()
    made.begin("forward")
    made.begin("gemm")
    made.spend(50)
    made.end()
    made.spend(950)
    made.end()
    reading = made.reading()
    path = CallPath(
        1, next(n for n, name in enumerate(reading.names) if name == ("gemm", 0)), -1, _reader.UNIT_DEFERRED
    )
    return replace(
        reading, paths=[*reading.paths, path], summaries=bytes(reading.summaries) + bytes(_reader.SUMMARY_BYTES)
    )


def device() -> Reading:
    work = passes(
        defer(0, path=3, id=1, elements=5) + defer(100, path=3, id=2) + defer(300, path=3, id=3) + measured(2, 70)
        + finalize(400) + defer(500, path=3, id=4)
    )  # fmt: skip
    return laid_over(host(), overlay(work))


def worker(reading: Reading) -> Worker:
    return Worker("made/0", reading, ledger_of(reading))


def test_a_bound_has_a_row_separate_from_measured_times() -> None:
    rows = {(brick.name, brick.bounded): brick for brick in bricks([worker(device())])}
    assert sorted(rows) == [("forward", False), ("gemm", False), ("gemm", True)]
    both = rows["gemm", False].row, rows["gemm", True].row
    assert [(row["count"], row["total_ns"]) for row in both] == [(2, 50 + 70), (2, 100 + 100)]
    assert rows["gemm", True].document()["latency_to_sync_max_ns"] == 400
    assert rows["gemm", True].document()["latency_to_sync_mean_ns"] == (400 + 100) / 2
    assert rows["gemm", False].document()["latency_to_sync_mean_ns"] is None
    assert rows["gemm", True].row["elements"] == 5


def test_device_time_is_not_the_self_time_of_the_surrounding_span() -> None:
    rows = {(brick.name, brick.bounded): brick.row["self_ns"] for brick in bricks([worker(device())])}
    assert rows["forward", False] == 950 - 70 - 200
    assert sum(rows.values()) == 1000


def test_the_tree_shows_bounds_separately() -> None:
    nodes = tree([worker(device())], layers=False).nodes
    assert [(n.place.name, n.depth, n.place.given, n.place.bounded, n.place.total_ns) for n in nodes] == [
        ("forward", 0, False, False, 1000),
        ("gemm", 1, True, True, 200),
        ("gemm", 1, True, False, 70),
        ("gemm", 1, False, False, 50),
    ]


def test_pending_work_is_in_the_ledger_only() -> None:
    ledger = worker(device()).ledger.document()["deferred"]
    others = dict.fromkeys(("orphaned", "late", "unmatched", "refused"), 0)
    assert ledger == {"started": 4, "measured": 1, "bounded": 2, "pending": 1} | others


def test_deferred_work_on_a_host_path_does_not_overwrite_its_time() -> None:
    overlaid = laid_over(host(), overlay(passes(defer(0, path=1, id=1) + defer(0, path=99, id=2) + finalize(400))))
    rows = {brick.name: brick.row["total_ns"] for brick in bricks([worker(overlaid)])}
    assert rows == {"forward": 1000, "gemm": 50}
    assert overlaid.deferred["bounded"] == 2
