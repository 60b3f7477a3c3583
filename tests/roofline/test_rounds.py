"""Rounds of a measurement: which are undisturbed, and how accurate they are while other work runs."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from brickd.analysis.roofline import _peaks
from brickd.analysis.roofline.measure import Plan, computing, fastest, reading
from brickd.analysis.roofline.rounds import LostTime, ProcessorUse, Round, Rounds, SlotWork, judged, rounds

CPUS = sorted(os.sched_getaffinity(0))
BEGIN = 1_000_000_000
QUIET = (LostTime(0, 0, 0), LostTime(2 * BEGIN, 0, 0))


def soon(seconds: float = 0.01) -> int:
    return time.monotonic_ns() + int(seconds * 1e9)


def part(*, slot: int = 1, amount: int = 900, late_ns: int = 0, took_ns: int = 900_000, lost_ns: int = 0) -> SlotWork:
    begun_ns = BEGIN + late_ns
    return SlotWork(slot, amount, begun_ns, begun_ns + took_ns, took_ns - lost_ns)


def one(*parts: SlotWork, taken: Sequence[LostTime] = QUIET) -> Round:
    (found,) = judged(parts, len(parts), taken)
    return found


# ---- one round


def test_a_rounds_rate_is_all_work_from_first_begin_to_last_end() -> None:
    found = one(part(amount=900), part(amount=500, late_ns=1_000, took_ns=999_000))
    assert found.per_second == pytest.approx(1_400 / 1_000_000e-9)


def test_a_slot_with_a_missing_thread_is_not_a_round() -> None:
    found = judged([part(slot=1), part(slot=1), part(slot=2), part(slot=3), part(slot=3)], 2, QUIET)
    assert len(found) == 2


@pytest.mark.parametrize(
    ("parts", "disturbed_by"),
    [
        ([part()], None),
        ([part(lost_ns=9_000)], None),
        ([part(lost_ns=9_001)], "waited"),
        ([part(), part(lost_ns=9_100)], "waited"),
        ([part(), part(late_ns=9_000)], None),
        ([part(), part(late_ns=9_200)], "waited"),
    ],
)
def test_a_round_is_undisturbed_if_each_thread_had_its_processor_throughout(
    parts: list[SlotWork], disturbed_by: str | None
) -> None:
    assert one(*parts).disturbed_by == disturbed_by


@pytest.mark.parametrize(
    ("since_ns", "until_ns", "hit"),
    [
        (BEGIN - 1_000, BEGIN + 1, True),
        (BEGIN + 899_999, BEGIN + 10**6, True),
        (BEGIN + 900_000 + 9_000_000, BEGIN + 10**8, True),  # a clock tick after the round
        (BEGIN + 900_000 + 10_000_000, BEGIN + 10**8, False),
        (BEGIN - 10**7, BEGIN, False),
    ],
)
@pytest.mark.parametrize(
    ("more", "why"), [((1, 0), "stolen"), ((0, 1), "throttled"), ((1, 1), "throttled"), ((0, 0), None)]
)
def test_a_round_near_stolen_or_throttled_time_is_disturbed(
    since_ns: int, until_ns: int, hit: bool, more: tuple[int, int], why: str | None
) -> None:
    taken = [LostTime(0, 7, 7), LostTime(since_ns, 7, 7), LostTime(until_ns, 7 + more[0], 7 + more[1])]
    assert one(part(), taken=taken).disturbed_by == (why if hit else None)


def test_only_time_taken_from_the_measured_processors_counts(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/stat").write_text(
        "cpu  1 1 1 1 1 1 1 99 0 0\ncpu0 1 1 1 1 1 1 1 3 0 0\ncpu1 1 1 1 1 1 1 1 4 0 0\ncpu10 1 1 1 1 1 1 1 50 0 0\n"
    )
    group = tmp_path / "sys/fs/cgroup"
    group.mkdir(parents=True)
    (group / "cpu.stat").write_text("throttled_usec 5\n")
    (tmp_path / f"proc/{os.getpid()}").mkdir()
    (tmp_path / f"proc/{os.getpid()}/cgroup").write_text("0::/\n")
    assert LostTime.now([0, 1], tmp_path)[1:] == (7, 5_000)
    assert LostTime.now([1], tmp_path)[1:] == (4, 5_000)
    assert LostTime.now([0], tmp_path / "none")[1:] == (0, 0)


# ---- many rounds


def test_the_best_round_and_the_best_undisturbed_round_are_kept_separately() -> None:
    found = [Round(5.0, "waited"), Round(3.0, None), Round(4.0, None), Round(9.0, "stolen"), Round(1.0, "stolen")]
    best = Rounds.best("float32", found, shared=True, others_processors=3.0)
    assert best == ("float32", 9.0, 5, 2, 4.0, {"waited": 1, "stolen": 2}, True, 3.0)
    assert Rounds.best("L1", found[:1], shared=False, others_processors=None)[3:5] == (0, None)


def test_only_rounds_of_the_fastest_instruction_set_count() -> None:
    few, many = [Round(9.0, None), Round(2.0, "waited")], 100 * [Round(5.0, None)]
    assert fastest([few, many]) == fastest([many, [], few]) == few


@pytest.mark.ci
def test_several_threads_compute_and_read_in_common_rounds() -> None:
    instructions = _peaks.sets()[0]
    for found in (computing(instructions, 4, CPUS, Plan(1, soon(20))), reading(4096, CPUS, Plan(1, soon(20)))):
        assert found
        assert all(each.per_second > 0 for each in found)


def test_measuring_ends_with_enough_undisturbed_rounds_or_at_the_time_limit() -> None:
    calls = []

    def work(until_ns: int) -> list[tuple[int, int, int, int, int]]:
        calls.append(until_ns)
        return [(len(calls), 900, 0, 900_000, 900_000)]

    assert len(rounds(CPUS[:1], lambda: work, until_ns=soon(3600), enough=3)) == 3
    assert len(calls) == 3
    assert len(rounds(CPUS[:1], lambda: work, until_ns=soon(-1), enough=3)) == 1


def test_a_thread_without_memory_ends_all_threads() -> None:
    with pytest.raises((OSError, ValueError, OverflowError)):
        reading(1 << 62, CPUS, Plan(1, soon()))


def test_next_to_a_process_on_the_same_processor_rounds_are_disturbed() -> None:
    instructions = _peaks.sets()[0]
    busy = f"import os; os.sched_setaffinity(0, {{{CPUS[0]}}}); print(flush=True)\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-P", "-c", busy], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            while all(each.disturbed_by != "waited" for each in computing(instructions, 4, CPUS[:1], Plan(1, soon()))):
                pass  # a round that runs between two time slices of the other process
        finally:
            process.kill()


# ---- the time that other processes took


def test_the_time_of_others_is_the_used_time_minus_ours() -> None:
    before = ProcessorUse(passed=100.0, taken=50.0, ours=10.0)
    assert ProcessorUse(passed=102.0, taken=65.0, ours=20.0).others_processors(before) == 2.5
    assert ProcessorUse(passed=102.0, taken=60.0, ours=21.0).others_processors(before) == 0
    assert before.others_processors(before) is None
    now = ProcessorUse.now()
    assert now.passed > 0
    assert now.taken > 0


def test_stolen_time_counts_as_used_and_idle_time_does_not(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    tick = os.sysconf("SC_CLK_TCK")
    all_cpus = f"cpu  {tick} 0 0 {7 * tick} {tick} 0 0 {2 * tick} 500 0\n"
    for cpus in (1, 2):
        each = "".join(f"cpu{cpu} 0 0\n" for cpu in range(cpus))
        (tmp_path / "proc/stat").write_text(f"{all_cpus}{each}intr 1\n")
        assert ProcessorUse.now(tmp_path)[:2] == (11 / cpus, 3)
    assert ProcessorUse.now(tmp_path / "none")[:2] == (0, 0)


# ---- the loops in C


def test_each_slot_of_a_read_has_its_bytes_and_times() -> None:
    with mmap.mmap(-1, 8192) as buffer:
        parts, offset = _peaks.reads(buffer, 4096, soon())
    assert 0 <= offset < 8192
    assert [each[0] for each in parts] == sorted({each[0] for each in parts})
    for slot, size_bytes, begun_ns, ended_ns, _ in parts:
        assert begun_ns >= slot * 1_000_000
        assert ended_ns >= slot * 1_000_000 + 900_000
        assert size_bytes > 0
        assert size_bytes % 256 == 0
    assert (sum(each[1] for each in parts) + 4096 - offset) % 8192 == 0


def test_each_instruction_set_and_type_reports_its_operations() -> None:
    for name in _peaks.sets():
        for size in (4, 8):
            parts = _peaks.madds(name, size, 0)
            assert len(parts) == 1
            assert parts[0][1] > 0


@pytest.mark.parametrize(
    ("size", "offset", "at"), [(0, 0, 0), (100, 0, 0), (256, 8, 0), (256, 0, 256), (512, 0, 8), (256, 0, -256)]
)
def test_a_buffer_that_cannot_be_read_is_refused(size: int, offset: int, at: int) -> None:
    with (
        mmap.mmap(-1, 4096) as buffer,
        memoryview(buffer) as whole,
        whole[offset : offset + size] as part,
        pytest.raises(ValueError, match="a multiple of 256 bytes, aligned to 64, and an offset within it"),
    ):
        _peaks.reads(part, at, 0)


@pytest.mark.parametrize(("name", "size"), [("AVX-4096", 4), ("", 8), (_peaks.sets()[0], 2), (_peaks.sets()[0], -4)])
def test_unknown_instruction_sets_and_sizes_are_refused(name: str, size: int) -> None:
    with pytest.raises(ValueError, match="expected an instruction set that this processor has, and a size of 4 or 8"):
        _peaks.madds(name, size, 0)


@pytest.mark.nightly
def test_no_numpy_matrix_product_on_one_core_exceeds_the_peak() -> None:
    """brickd and numpy are measured alternately, because the clock rate of the processor changes. numpy's matrix
    library runs in its own process, bound to one core.
    """
    code = f"""
import os; os.environ.update(OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")
os.sched_setaffinity(0, {{{CPUS[0]}}})
import time, numpy
from brickd.analysis.roofline import _peaks
from brickd.analysis.roofline.measure import Plan, computing
for kind, size in (("float32", 4), ("float64", 8)):
    a = numpy.full((256, 256), 0.5, kind)
    into, peak, product = numpy.empty_like(a), 0.0, 0.0
    for _ in range(20):
        for name in _peaks.sets()[:2]:
            until_ns = time.monotonic_ns() + 100_000_000
            peak = max(peak, *(each.per_second for each in computing(name, size, [{CPUS[0]}], Plan(10**9, until_ns))))
        for _ in range(100):
            begun = time.perf_counter_ns()
            numpy.matmul(a, a, out=into)
            product = max(product, 2 * 256**3 / (time.perf_counter_ns() - begun) * 1e9)
    assert product <= peak, (kind, product, peak)
"""
    result = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def test_each_figure_gets_its_share_of_the_remaining_time() -> None:
    before_ns = soon(0)
    part = Plan(7, before_ns + 4_000_000_000_000).shared_by(4)
    assert part.enough == 7
    assert before_ns + 1_000_000_000_000 <= part.until_ns <= soon(1000)
    assert Plan(7, 0).shared_by(4).is_over
