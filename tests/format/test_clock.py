"""Clocks that the kernel does not trust, that go back, or that belong to another time namespace."""

from __future__ import annotations

import ctypes
import platform
from pathlib import Path

import pytest
from conftest import ROOT, reading, readings
from faults import NATIVE, PRIVATE, Compile, Start, exact, native, needs_namespaces, program, record, summaries

from brickd.shm import _reader

TRUSTED = {"x86_64": "tsc", "aarch64": "arch_sys_counter"}[platform.machine()]
KERNEL = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")

BUSY = """
import time
b = brick.brick("b")
with b:
    t = time.perf_counter_ns()
    while time.perf_counter_ns() - t < 5_000_000: pass
"""


def clocks(compiled: Compile) -> Path:
    return program(compiled, "clocks")


@pytest.mark.ci
def test_a_tick_is_measured_until_a_segment_is_a_second_old(
    compiled: Compile,
) -> None:
    """After this second, the length of a tick is constant, so later readings show the same times for the same spans."""
    writer = (ROOT / "agent" / "src" / "writer" / name for name in ("clock.c", "memory_limit.c"))
    library = ctypes.CDLL(str(compiled("ticks.so", (NATIVE / "ticks.c", *writer), "-shared", "-fPIC")))
    library.tick_ns.restype = ctypes.c_double

    def tick_ns(milliseconds: int, each: float) -> float:
        return float(library.tick_ns(ctypes.c_uint64(milliseconds * 1_000_000), ctypes.c_double(each)))

    assert tick_ns(500, 1.0) < 2 < tick_ns(500, 8.0)
    kept = tick_ns(4_000, 8.0)
    assert kept > 4
    assert tick_ns(4_000, 1.0) == tick_ns(500, 1.0) == kept


@pytest.mark.parametrize(
    "text",
    [
        "hpet\n",
        *(
            pytest.param(each, marks=pytest.mark.ci)
            for each in ("acpi_pm\n", "", "tsc", "tsc\nhpet\n", "\0" * 40, None)
        ),
    ],
)
def test_a_tsc_that_the_kernel_does_not_trust_is_not_used(
    compiled: Compile, prefix: str, tmp_path: Path, text: str | None
) -> None:
    source = tmp_path / "current_clocksource"
    if text is not None:
        source.write_text(text)
    with native(clocks(compiled), str(source)) as process:
        process.next_report()
        got = reading(prefix)
        assert got.header["clock"] == _reader.CLOCK_MONOTONIC
        assert got.tick_ns == 1.0
        assert exact(got) == {"begun": 1, "summarized": 1}
        assert 1_000_000 <= summaries(got)[("b",)]["total_ns"] < 1e9
        process.go()
        assert process.end() == 0


@pytest.mark.skipif(
    not KERNEL.exists() or KERNEL.read_text().strip() != TRUSTED, reason=f"the kernel distrusts {TRUSTED}"
)
def test_a_tsc_that_the_kernel_trusts_is_used(compiled: Compile, prefix: str) -> None:
    with native(clocks(compiled), str(KERNEL)) as process:
        process.next_report()
        got = reading(prefix)
        assert got.header["clock"] not in (0, _reader.CLOCK_MONOTONIC)
        assert exact(got) == {"begun": 1, "summarized": 1}
        assert 1_000_000 * 0.999 <= summaries(got)[("b",)]["total_ns"] < 1e9
        process.go()
        assert process.end() == 0


def test_a_span_that_would_end_before_its_start_is_rejected_and_counted(compiled: Compile, prefix: str) -> None:
    with native(clocks(compiled), "back") as process:
        process.next_report()
        got = reading(prefix)
        assert exact(got) == {"begun": 2, "summarized": 1, "rejected": 1}
        assert [lane["rejected"] for _, lane, _ in got.lanes] == [(1, 0)]
        (row,) = summaries(got).values()
        assert (row["count"], row["min_ns"], row["max_ns"]) == (1, 100, 100)
        process.go()
        assert process.end() == 0


def test_the_monotonic_clock_can_be_configured(worker: Start, prefix: str) -> None:
    got = record(worker, prefix, BUSY, BRICKD_CLOCK="monotonic")
    assert got.header["clock"] == _reader.CLOCK_MONOTONIC
    assert exact(got) == {"begun": 1, "summarized": 1}


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("BRICKD_CLOCK", "nonsense"),
        ("BRICKD_SHM_PREFIX", "with/slash"),
        ("BRICKD_SHM_PREFIX", "x" * 40),
        *(("BRICKD_LANES", value) for value in ("0", "-1", "two", "2x", " 2")),
        ("BRICKD_PATHS", "1e3"),
        ("BRICKD_NAMES", str(2**32)),
        ("BRICKD_SITES", "0"),
        ("BRICKD_EVENTS", "-1"),
    ],
)
def test_an_invalid_setting_gives_one_warning_and_does_not_affect_the_host(
    worker: Start, prefix: str, variable: str, value: str
) -> None:
    process = worker(
        """
        for _ in range(100):
            with brick.span("b"): pass
        report(brick.init())
        sys.exit(5)
        """,
        **{variable: value},
    )
    assert process.next_report() is False
    assert process.end() == 5
    (line,) = process.stderr.splitlines()
    assert line.startswith("brickd: this process is not recorded: ")
    assert variable in line
    assert readings(prefix) == []


@pytest.mark.slow
@needs_namespaces
@pytest.mark.parametrize("offset", ["1000000", "-100"])
@pytest.mark.parametrize("clock", ["tsc", "monotonic"])
def test_a_worker_in_another_time_namespace_measures_the_same(
    worker: Start, prefix: str, clock: str, offset: str
) -> None:
    process = worker(
        PRIVATE
        + f"""
if libc.unshare(0x80) != 0: raise OSError(ctypes.get_errno(), "unshare")
open("/proc/self/timens_offsets", "w").write("monotonic {offset} 0\\n")
child = os.fork()
if child == 0:
    exec({BUSY!r})
    pause()
    os._exit(0)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
""",
        BRICKD_CLOCK=clock,
    )
    process.paused()
    got = reading(prefix)
    assert exact(got) == {"begun": 1, "summarized": 1}
    (row,) = summaries(got).values()
    assert 5_000_000 * 0.99 <= row["total_ns"] < 1e9
    process.go()
    assert process.end() == 0
