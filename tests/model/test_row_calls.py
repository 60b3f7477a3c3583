"""Calls that the agent examined for rows are counted for each phase, or for each reason why they have no rows."""

from __future__ import annotations

from dataclasses import replace

import forge

from brickd.model.row_calls import RowCalls, RowSite, row_calls
from brickd.model.summary_fold import SummaryFold
from brickd.model.workers import Worker
from brickd.shm import _reader
from brickd.shm.ledger import ledger_of


def test_calls_are_counted_by_phase_and_sites_without_rows_by_reason() -> None:
    with forge.segment_of(forge.golden("1.12")) as segment:
        reading = segment.read()
    worker = Worker("golden/0", reading, ledger_of(reading))
    for times in (1, 3):
        found = row_calls([worker] * times)
        assert found.phases == {"decode": 2 * times}
        assert found.turns == 3
        assert found.kernels == {"ffn": found.phases}
        assert found.unknown == {"quantized": {RowSite("ffn", 2): 0}}, "the site is never examined"
    fold: SummaryFold[tuple[object, ...]] = SummaryFold(marks=True)
    fold.add(reading, lambda path, above: (above, *path))
    assert not [key for key in fold.keys if key[-1] == 15], "calls that are counted for rows are in no call tree"


def test_workers_that_ended_count_only_if_none_is_live() -> None:
    with forge.segment_of(forge.golden("1.12")) as segment:
        ended = segment.read()
    living = replace(ended, pid=1, paths=ended.paths[:1], summaries=bytes(_reader.SUMMARY_BYTES))
    workers = [Worker("golden/0", each, ledger_of(each)) for each in (ended, living)]
    assert (ended.alive, living.alive) == (False, True)
    assert row_calls(workers).phases == {}
    assert row_calls(workers[:1]).phases == {"decode": 2}


def test_an_older_worker_has_no_such_calls() -> None:
    with forge.segment_of(forge.golden("1.11")) as segment:
        reading = segment.read()
    assert row_calls([Worker("golden/0", reading, ledger_of(reading))]) == RowCalls({}, {}, 0)
    assert row_calls([]) == RowCalls({}, {}, 0)


def test_each_turn_comes_within_a_block_of_eight_epochs_per_eight_turns() -> None:
    assert [RowCalls({}, {}, turns).cycle_seconds for turns in (0, 1, 8, 9)] == [0, 40, 40, 80]


def test_reasons_are_counted_by_site_the_most_frequent_first() -> None:
    one, other = RowSite("mlp", 1), RowSite("mlp", 2)
    found = RowCalls({}, {"training": {one: 7}, "compiled": {one: 0, other: 3}}, 0)
    assert list(found.reasons.items()) == [("compiled", 2), ("training", 1)]
    assert found.why(one) == {"training": 7, "compiled": 0}
    assert found.why(RowSite("mlp", 3)) == {}
