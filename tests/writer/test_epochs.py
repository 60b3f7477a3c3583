"""The epoch: a step that is repeated is sampled within a limited number of epochs, and a worker that gets no epoch uses
its clock.
"""

from __future__ import annotations

import ctypes
import math
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from conftest import ROOT, WRITER, reading
from epochs import drawn, give
from faults import Start
from recorded import events

from brickd.shm import _reader

SETS, PROMPTS = 20, 10
LAST = 2**32 - 1
# The probability that a prompt is not sampled within the quantile. It is so low that the test fails by chance in at
# most 1 of 1,000 runs.
MISSED = 0.001 / (SETS * PROMPTS)


def quantile(of: int) -> int:
    """Return after how many epochs the probability that a prompt has never been sampled is at most `MISSED`."""
    return math.ceil(math.log(MISSED) / math.log(1 - 1 / of))


Drawn = Callable[..., list[list[int]]]


@pytest.fixture
def draws(compiled: Callable[..., Path], prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Drawn:
    """Return a function. For each first epoch, it returns which requests of each prompt were sampled, for all prompts
    of all sets.
    """
    program = compiled("epochs", (ROOT / "tests" / "native" / "epochs.c", *WRITER))
    key = tmp_path / "key"
    key.write_text("0123456789abcdef8796a5b4c3d2e1f0fedcba9876543210")
    key.chmod(0o600)
    monkeypatch.setenv("BRICKD_KEY_FILE", str(key))
    prompts = "".join(f"prompt {p} of set {s}\n" for s in range(SETS) for p in range(PROMPTS))

    def run(rate: int, most: int, firsts: Sequence[int], every: int = 1) -> list[list[int]]:
        command = [str(each) for each in (program, rate, every, most, *firsts)]
        done = subprocess.run(command, input=prompts, capture_output=True, text=True, check=True)
        found = [[int(word) for word in line.split()] for line in done.stdout.splitlines()]
        assert len(found) == len(firsts) * SETS * PROMPTS
        return found

    return run


def test_the_quantile_is_that_of_independent_draws() -> None:
    assert (quantile(64), quantile(16), quantile(2)) == (776, 190, 18)
    assert (1 - 1 / 64) ** 776 <= MISSED < (1 - 1 / 64) ** 775


@pytest.mark.ci
def test_every_prompt_is_sampled_before_the_quantile_and_within_127_epochs(draws: Drawn) -> None:
    found = draws(2**32 // 64, quantile(64), (0, 37, 345_678_901))
    assert max(each[0] for each in found) <= 126 < quantile(64)
    share = sum(map(len, found)) / len(found) / quantile(64)
    assert 0.98 / 64 < share < 1.02 / 64


@pytest.mark.parametrize("bits", [3, *(pytest.param(bits, marks=pytest.mark.ci) for bits in (1, 2, 4, 5, 6))])
def test_a_rate_of_one_in_n_samples_a_step_once_in_n_epochs(draws: Drawn, bits: int) -> None:
    of = 2**bits
    for each in draws(2**32 // of, 128, (64 * 5,)):
        assert [time // of for time in each] == list(range(128 // of))


def test_the_sampled_epoch_is_independent_in_each_block_of_64(draws: Drawn) -> None:
    found = draws(2**32 // 64, 128, (0,))
    later = [second - 64 - first for first, second in found]
    assert later.count(0) < 12, "by chance, about 3 of 200 prompts have the same epoch in both blocks"
    assert {each < 0 for each in later} == {True, False}


@pytest.mark.ci
@pytest.mark.parametrize("every", [2, 3, 4, 12, 32, 64, 65])
def test_a_prompt_at_regular_times_is_sampled_before_the_quantile(draws: Drawn, every: int) -> None:
    found = draws(2**32 // 64, quantile(64), (0,), every)
    assert all(found), "the quantile counts the requests of the prompt"


@pytest.mark.ci
@pytest.mark.parametrize("of", [3, 10, 1000])
def test_rates_that_are_not_powers_of_two_sample_their_share(draws: Drawn, of: int) -> None:
    found = draws(2**32 // of, 512, (7,))
    assert sum(map(len, found)) / len(found) / 512 == pytest.approx(1 / of, rel=0.1)
    for each in found if of < 64 else ():
        gap = 2 * 2 ** math.ceil(math.log2(of)) - 1
        assert max(b - a for a, b in zip([-1, *each], [*each, 512], strict=True)) <= gap


@pytest.mark.ci
def test_rates_of_all_and_none_do_not_depend_on_the_epoch(draws: Drawn) -> None:
    assert all(each == list(range(70)) for each in draws(_reader.RATE_ALL, 70, (LAST - 3,)))
    assert not any(draws(_reader.RATE_NONE, 70, (LAST - 3,)))


# ---- the origin of the epoch

EpochOf = Callable[[int, int], int]


@pytest.fixture
def epoch_of(compiled: Callable[..., Path]) -> EpochOf:
    library = ctypes.CDLL(str(compiled("draw.so", (ROOT / "tests" / "native" / "draw.c",), "-shared", "-fPIC")))
    function: EpochOf = library.epoch_of
    library.epoch_of.argtypes = (ctypes.c_uint64, ctypes.c_uint64)
    library.epoch_of.restype = ctypes.c_uint32
    return function


@pytest.mark.parametrize("second", [1_800_000_000, pytest.param(2**32 - 30, marks=pytest.mark.ci)])
def test_an_epoch_word_expires_and_is_ignored_if_far_in_the_future(
    epoch_of: Callable[[int, int], int], second: int
) -> None:
    def until(seconds: int) -> int:
        return (second + seconds) % 2**32 << 32 | 99

    own = second // _reader.EPOCH_SECONDS
    assert [epoch_of(until(left), second) for left in (-1, 0, 1, 59, 60, 61)] == [own, 99, 99, 99, 99, own]
    assert epoch_of(0, 1_800_000_000) == 1_800_000_000 // _reader.EPOCH_SECONDS


# One can tell from the sampled steps which epoch it is.
STEPS = 200
PROGRAM = f"""
import numpy as np
x = np.ones(4, "f")
def steps():
    for number in range({STEPS}):
        with brick.step(number): brick.checksum("mlp", x)
brick.init()
pause()
while True:
    steps()
    pause()
"""


class Rounds:
    """A worker that does all steps on request, with the rate 1/16."""

    def __init__(self, start: Start, prefix: str) -> None:
        self.process, self._prefix, self._seen = start(PROGRAM, BRICKD_FINGERPRINTS="1/16"), prefix, 0
        self.process.paused()
        self.file = reading(prefix).file

    def steps(self) -> list[int]:
        """The recorded steps."""
        self.process.go()
        self.process.paused()
        found = events(reading(self._prefix))[self._seen :]
        self._seen += len(found)
        return [each["step"] for each in found]


def of(epoch: int) -> list[int]:
    return [step for step in range(STEPS) if drawn(step, 16, epoch)]


def test_a_worker_samples_by_its_valid_epoch_and_otherwise_by_its_clock(worker: Start, prefix: str) -> None:
    one = Rounds(worker, prefix)
    for epoch in (0, 1, 64, LAST):
        give(one.file, epoch)
        assert one.steps() == of(epoch)
    for holds in (-1, 100):
        give(one.file, LAST, holds=holds)
        before, steps, after = int(time.time()), one.steps(), int(time.time())
        assert steps in [of(second // _reader.EPOCH_SECONDS) for second in range(before - 1, after + 1)]


@pytest.mark.ci
def test_a_step_keeps_the_epoch_in_which_it_began(worker: Start, prefix: str) -> None:
    process = worker(
        """
        import numpy as np
        x = np.ones(4, "f")
        def check(): brick.checksum("mlp", x)
        brick.init()
        pause()
        for number in range(2):
            with brick.step(number):
                check()
                pause()
                with brick.span("inner"), brick.layer(3): check()
                brick.checksum("mlp", x, step=number)
                brick.checksum("mlp", x, step=number + 10)
            pause()
        """,
        BRICKD_FINGERPRINTS="1/2",
    )
    process.paused()
    # In the first epoch, steps 0 and 10 are sampled, and steps 1 and 11 are not. In the second epoch, steps 1 and 11
    # are sampled, and steps 0 and 10 are not.
    first, second = (
        next(e for e in range(4096) if [drawn(step, 2, e) for step in (0, 1, 10, 11)] == [so, not so, so, not so])
        for so in (True, False)
    )
    file = reading(prefix).file
    for _ in range(2):
        give(file, first)
        process.go()
        process.paused()
        give(file, second)
        process.go()
        process.paused()
    assert [each["step"] for each in events(reading(prefix))] == [0, 0, 0, 11]
    process.go()
    assert process.end() == 0, process.stderr
