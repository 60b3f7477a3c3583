"""Which checksums are recorded: a step is recorded as a whole, all workers record the same steps, and all chosen sites
are recorded.
"""

from __future__ import annotations

import os
import struct
from itertools import pairwise

import pytest
from checksums import recorded, recorded_in
from conftest import SHM, reading
from epochs import EPOCH, drawn, give
from faults import Start
from forge import PAGE, field, place

from brickd.shm import _reader

STEPS = """
brick.init()
for number in range({steps}):
    with brick.step(number):
        for layer in range(3):
            brick.checksum("mlp", y, input=x, layer=layer)
"""


@pytest.mark.parametrize("of", [2, 9, 16])
def test_all_sites_of_a_step_are_recorded_or_none(worker: Start, prefix: str, of: int) -> None:
    left = recorded_in(EPOCH, worker, prefix, STEPS.format(steps=200), BRICKD_FINGERPRINTS=f"1/{of}")
    wanted = [step for step in range(200) if drawn(step, of)]
    assert [each["step"] for each in left.events] == [step for step in wanted for _ in range(3)]
    assert 200 // of // 2 < len(wanted) < 200 * 2 // of
    assert left.reading.header["rate"] == 2**32 // of
    assert [sum(lane["event_dropped"]) for _, lane, _ in left.reading.lanes] == [0]


@pytest.mark.parametrize(("text", "recorded_of"), [("off", 0), ("all", 12), ("1/1", 12)])
def test_a_rate_may_record_every_step_or_none(worker: Start, prefix: str, text: str, recorded_of: int) -> None:
    left = recorded(worker, prefix, STEPS.format(steps=4), BRICKD_FINGERPRINTS=text)
    assert len(left.events) == recorded_of


def test_checksums_outside_of_steps_are_recorded_at_the_full_rate(worker: Start, prefix: str) -> None:
    source = "brick.init()\nbrick.checksum('mlp', y)\nbrick.checksum('mlp', y, step=7)"
    assert len(recorded(worker, prefix, source, BRICKD_FINGERPRINTS="all").events) == 2


def test_checksums_outside_of_steps_are_not_recorded_at_a_lower_rate(worker: Start, prefix: str) -> None:
    source = "brick.init()\nfor n in range(9): brick.checksum('mlp', y)"
    assert recorded(worker, prefix, source, BRICKD_FINGERPRINTS="1/2").events == []


@pytest.mark.parametrize("text", ["1/0", "1/", "2/3", "0.5", "1/1000001", "some", "1/-1", "1/ 2"])
def test_an_invalid_rate_is_reported_and_nothing_recorded(worker: Start, prefix: str, text: str) -> None:
    process = worker("report(brick.init())", BRICKD_FINGERPRINTS=text)
    assert process.next_report() is False
    assert process.end() == 0
    wanted = "BRICKD_FINGERPRINTS must be off, all, or 1/N: one step of every N (N up to 1000000), not "
    assert process.stderr == f"brickd: this process is not recorded: {wanted}'{text}'\n"


def ask(prefix: str, rate: int, sites: int) -> int:
    """Set the rate and the sites as a consumer does. Return the number of checksums that had been recorded until
    then.
    """
    before = reading(prefix)
    at = {row[1]: row[2] for row in _reader.layout() if row[0] == "control"}
    with open(SHM / before.file, "r+b", buffering=0) as file:
        os.pwrite(file.fileno(), struct.pack("<I", rate), _reader.CONTROL + at["fingerprint_rate"])
        os.pwrite(file.fileno(), struct.pack("<Q", sites), _reader.CONTROL + at["sites"])
    give(before.file)
    return sum(lane["event_records"] for _, lane, _ in before.lanes)


def test_the_consumers_rate_overrides_the_hosts(worker: Start, prefix: str) -> None:
    process = worker(
        """
        import numpy as np
        y = np.ones(4, "f")
        def steps():
            for number in range(64):
                with brick.step(number):
                    brick.checksum("mlp", y, layer=1)
                    brick.checksum("norm", y)
            report(None)
            pause()
        brick.init()
        pause()
        for _ in range(5): steps()
        """,
        BRICKD_FINGERPRINTS="1/2",
    )
    process.paused()
    give(reading(prefix).file)
    process.go()
    seen, every = [], _reader.RATE_ALL
    for rate, sites in ((every, 0), (every, 0b10), (_reader.RATE_NONE, 0), (2**32 // 8, 0), (0, 0)):
        process.next_report()
        process.paused()
        seen.append(ask(prefix, rate, sites))
        process.go()
    assert process.end() == 0, process.stderr
    of_two, of_eight = (sum(drawn(step, of) for step in range(64)) for of in (2, 8))
    assert [b - a for a, b in pairwise([0, *seen])] == [2 * of_two, 128, 64, 0, 2 * of_eight]


WATCHED = """
from brick_agent._core import _watched
def forward(): return y
def checked():
    brick.checksum("mlp", forward())
    return y
mlp = _watched(forward, brick.brick("mlp"), None, checked, 2**32 // {of})
def steps():
    for number in range(200):
        with brick.step(number): mlp()
brick.init()
steps()
"""


def test_a_rate_given_in_the_code_applies_and_is_in_the_segment(worker: Start, prefix: str) -> None:
    left = recorded_in(EPOCH, worker, prefix, WATCHED.format(of=16))
    assert [each["step"] for each in left.events] == [step for step in range(200) if drawn(step, 16)]
    assert (left.reading.process["rate"], left.reading.own_rate, left.reading.rate) == (2**32 // 16, 2**32 // 16, 0)


def test_the_configured_rate_overrides_the_one_in_the_code(worker: Start, prefix: str) -> None:
    left = recorded_in(EPOCH, worker, prefix, WATCHED.format(of=16), BRICKD_FINGERPRINTS="1/2")
    assert [each["step"] for each in left.events] == [step for step in range(200) if drawn(step, 2)]
    assert (left.reading.own_rate, left.reading.rate) == (0, 2**32 // 2)


@pytest.mark.parametrize("given", [2**32, 2**64 - 1])
def test_an_invalid_rate_in_a_segment_is_ignored(worker: Start, prefix: str, given: int) -> None:
    process = worker("brick.init()\npause()")
    process.paused()
    with open(SHM / reading(prefix).file, "r+b", buffering=0) as file:
        at = place(file.read(PAGE), "process") + field("process", "rate")[0]
        os.pwrite(file.fileno(), struct.pack("<Q", given), at)
    assert (reading(prefix).process["rate"], reading(prefix).own_rate) == (given, 0)
    process.go()
    assert process.end() == 0, process.stderr
