"""A profile of live workers: what they did between two readings, for each stack."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from made_up_workers import HOSTILE, MadeUp
from pprof_reader import profile

from brickd.export import pprof
from brickd.export.live_profile import live_profile
from brickd.model.survey_snapshot import Snapshot
from brickd.model.workers import Survey, Worker
from brickd.shm import _reader
from brickd.shm.ledger import Ledger

SECOND = 10**9


def look(made: MadeUp, at_s: int, *, alive: bool = True) -> Snapshot:
    reading = made.reading()
    header: Any = reading.header | {"clock": 3, "anchor_ticks": 0, "anchor_ns": 0}
    process: Any = reading.process | {"took": 0}
    reading = replace(reading, header=header, process=process, pid=1 if alive else None)
    found = Survey([Worker("api/0", reading, Ledger())], [], clocks={3: (5, 5)})
    return Snapshot.of(found, at_s * SECOND, (1000 + at_s) * SECOND)


def step(made: MadeUp, brick: str = "norm", layer: int = -1) -> None:
    made.begin("forward")
    made.spend(10)
    made.begin(brick, layer, "ffn")
    made.spend(5)
    made.end()
    made.end()


def test_it_has_what_was_done_between_the_looks_with_stacks_and_labels() -> None:
    made = MadeUp("api")
    step(made, layer=3)
    before = look(made, 0)
    step(made, layer=3)
    step(made, layer=3)
    samples, whole = profile(live_profile(before, look(made, 10)))
    labels = {"service": "api", "worker": "api/0"}
    assert samples == [
        {"values": [2, 20], "stack": ["forward"], "labels": labels | {"category": "other"}},
        {"values": [2, 10], "stack": ["norm", "forward"], "labels": labels | {"category": "ffn", "layer": 3}},
    ]
    assert whole[pprof.COMMENT] == []
    assert (whole[pprof.TIME_NS], whole[pprof.DURATION_NS]) == ([1000 * SECOND], [10 * SECOND])


def test_a_worker_that_died_meanwhile_counts() -> None:
    made = MadeUp("api")
    before = look(made, 0)
    step(made)
    samples, _ = profile(live_profile(before, look(made, 10, alive=False)))
    assert [each["values"][0] for each in samples] == [1, 1]


def test_a_worker_that_did_nothing_has_no_sample() -> None:
    made = MadeUp("api")
    step(made)
    assert profile(live_profile(look(made, 0), look(made, 1)))[0] == []


def test_upper_bounds_are_left_out() -> None:
    made = MadeUp("api")
    before = look(made, 0)
    step(made)
    made.paths.append(made.paths[1]._replace(unit=_reader.UNIT_BOUND))
    made.sums.append(made.sums[1])
    samples, _ = profile(live_profile(before, look(made, 1)))
    assert [each["stack"] for each in samples] == [["forward"], ["norm", "forward"]]


def test_a_worker_whose_earlier_totals_are_unknown_is_counted_in_a_comment() -> None:
    nobody = Snapshot.of(Survey([], []), 0, 0)
    made = MadeUp("api")
    step(made)
    samples, whole = profile(live_profile(nobody, look(made, 1)))
    assert samples == []
    assert len(whole[pprof.COMMENT]) == 1


def test_hostile_names_are_visible_text() -> None:
    made = MadeUp("api")
    before = look(made, 0)
    step(made, HOSTILE + "\udc80")
    samples, _ = profile(live_profile(before, look(made, 1)))
    assert all(name.isprintable() for each in samples for name in each["stack"])
