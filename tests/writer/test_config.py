"""The configuration of a segment: each setting, its bounds, rounding, invalid values."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import dtypes
import numpy as np
import pytest
from conftest import WRITER
from faults import NATIVE, Compile

NUMBERS = ("lanes", "paths", "names", "sites", "event_slots")
VARIABLES = dict(zip(NUMBERS, ("LANES", "PATHS", "NAMES", "SITES", "EVENTS"), strict=True))
MOST = {"paths": 65_472, "names": 65_472, "sites": 16_384}


class Plan(NamedTuple):
    wrong: str | None
    header: Any
    prefix: str
    rate: int


class Config(ctypes.Structure):
    """struct brick_config."""

    _fields_ = [
        *((name, ctypes.c_char_p) for name in ("service", "worker", "prefix", "clock", "clocksource")),
        *((name, ctypes.c_uint32) for name in ("lanes", "paths", "names", "sites", "span_slots", "event_slots")),
    ]


@pytest.fixture(scope="module")
def library(compiled: Compile) -> Any:
    made = ctypes.CDLL(str(compiled("plan.so", (NATIVE / "plan.c", *WRITER), "-shared", "-fPIC")))
    made.plan_of.restype = ctypes.c_char_p
    return made


@pytest.fixture
def planned(library: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Plan]:
    """Return a function that makes a plan from variables, as in `planned(LANES="2")`, or from settings of the host, as
    in `planned(host={"lanes": 2})`.
    """

    def plan(host: dict[str, Any] | None = None, **environment: str) -> Plan:
        with monkeypatch.context() as context:
            for name in (*VARIABLES.values(), "FINGERPRINTS", "SERVICE", "WORKER", "SHM_PREFIX", "CLOCK"):
                context.delenv(f"BRICKD_{name}", raising=False)
            for name, value in environment.items():
                context.setenv(f"BRICKD_{name}", value)
            header = ctypes.create_string_buffer(dtypes.dtype("header").itemsize)
            prefix, rate = ctypes.create_string_buffer(64), ctypes.c_uint32()
            wrong = library.plan_of(ctypes.byref(Config(**(host or {}))), header, prefix, ctypes.byref(rate))
            (row,) = np.frombuffer(header.raw, dtypes.dtype("header"))
            return Plan(wrong and wrong.decode(), row, prefix.value.decode(), rate.value)

    return plan


@pytest.mark.parametrize(
    ("what", "unsaid"),
    [
        ("lanes", 32),
        *(
            pytest.param(*each, marks=pytest.mark.ci)
            for each in (("paths", 8192), ("names", 4096), ("sites", 2048), ("event_slots", 4096))
        ),
    ],
)
def test_each_setting_has_a_default_and_the_host_overrides_the_environment(
    planned: Callable[..., Plan], what: str, unsaid: int
) -> None:
    variable = VARIABLES[what]
    assert planned().header[what] == planned(**{variable: ""}).header[what] == unsaid
    assert planned(**{variable: "128"}).header[what] == 128
    assert planned(**{variable: "9"}).header[what] == {"lanes": 9, "event_slots": 16}.get(what, 64)
    assert planned({what: 64}, **{variable: "128"}).header[what] == 64
    assert planned({what: 64}, **{variable: "no number"}).wrong is None


@pytest.mark.parametrize("what", NUMBERS)
@pytest.mark.parametrize("value", ["0", "-1", "+5", " 5", "5 ", "5x", "0x10", "1e3", "x", "4294967296", str(2**64)])
def test_sizes_that_are_not_positive_numbers_are_refused(planned: Callable[..., Plan], what: str, value: str) -> None:
    assert (
        planned(**{VARIABLES[what]: value}).wrong == f"BRICKD_{VARIABLES[what]} must be a number above 0, not '{value}'"
    )


@pytest.mark.parametrize("what", ["paths", "names", "sites"])
def test_rows_are_rounded_up_to_complete_blocks_within_the_limit(planned: Callable[..., Plan], what: str) -> None:
    most = MOST[what]
    wanted = {1: 64, 63: 64, 64: 64, 65: 128, most - 1: most, most: most, most + 1: most, 2**32 - 1: most}
    assert {n: planned(**{VARIABLES[what]: str(n)}).header[what] for n in wanted} == wanted


def test_event_slots_are_a_power_of_two(planned: Callable[..., Plan]) -> None:
    wanted = {1: 1, 2: 2, 3: 4, 4: 4, 5: 8, 4095: 4096, 4097: 8192, 2**20 - 1: 2**20, 2**20: 2**20, 2**32 - 1: 2**20}
    assert {n: planned(EVENTS=str(n)).header["event_slots"] for n in wanted} == wanted
    assert planned().header["span_slots"] == 4096
    assert planned({"span_slots": 7}).header["span_slots"] == 7


@pytest.mark.parametrize(
    ("text", "rate"),
    [("", 0), ("all", 2**32 - 1),
     ("1/1", 2**32 - 1), ("1/2", 2**31), ("1/3", 2**32 // 3), ("1/9", 2**32 // 9), ("1/16", 2**28),
     ("1/1000000", 4294), ("1/01", 2**32 - 1)],
)  # fmt: skip
def test_a_sampling_rate_is_one_of_a_number_of_steps(planned: Callable[..., Plan], text: str, rate: int) -> None:
    assert planned(FINGERPRINTS=text)[::3] == (None, rate)


def test_disabled_fingerprints_have_a_rate_that_samples_no_step(planned: Callable[..., Plan]) -> None:
    assert planned(FINGERPRINTS="off").rate not in {0, *(planned(FINGERPRINTS=f"1/{n}").rate for n in (1, 2, 10**6))}


@pytest.mark.parametrize("text", ["1/0", "1/", "1/1000001", "2/3", "1/x", "1/2x", "1/-2", "1/ 2", "ALL", "on", "16"])
def test_an_invalid_rate_is_refused(planned: Callable[..., Plan], text: str) -> None:
    assert planned(FINGERPRINTS=text).wrong == (
        f"BRICKD_FINGERPRINTS must be off, all, or 1/N: one step of every N (N up to 1000000), not '{text}'"
    )


@pytest.mark.parametrize(
    ("worker", "index", "coordinates"),
    [
        ("", -1, ""), ("0", 0, ""), ("17", 17, ""), ("2147483647", 2**31 - 1, ""), ("2147483648", -1, ""),
        ("0.tp3.pp1", 0, "0.tp3.pp1"), ("3x", -1, "3x"), ("-1", -1, ""), ("-1.a", -1, "-1.a"), ("a.3", -1, "a.3"),
        ("left", -1, "left"), ("a b", -1, "a b"),
        ("a/b\tc\x7f", -1, "a_b_c_"), ("x" * 63, -1, "x" * 63), ("x" * 64, -1, "x" * 63),
        ("é" * 32, -1, "é" * 31), ("x" + "é" * 31, -1, "x" + "é" * 31), ("x" * 62 + "é", -1, "x" * 62),
    ],
)  # fmt: skip
def test_a_worker_has_an_index_coordinates_or_a_name_of_complete_characters(
    planned: Callable[..., Plan], worker: str, index: int, coordinates: str
) -> None:
    header = planned(WORKER=worker).header
    assert (header["index"], header["coordinates"].tobytes().rstrip(b"\0").decode()) == (index, coordinates)


@pytest.mark.parametrize(
    ("length", "slash", "fits"), [(0, False, True), (39, False, True), (40, False, False), (3, True, False)]
)
def test_a_prefix_is_short_and_without_a_slash(
    planned: Callable[..., Plan], length: int, slash: bool, fits: bool
) -> None:
    prefix = "x" * length + "/" * slash
    plan = planned(SHM_PREFIX=prefix)
    assert (plan.wrong is None) == fits
    if fits:
        assert plan.prefix == (prefix or "brickd-")
    else:
        assert plan.wrong == (f"BRICKD_SHM_PREFIX must be at most 39 bytes without a slash, not '{prefix}'")


@pytest.mark.parametrize("clock", ["", "auto", "tsc", "monotonic", "TSC", "raw"])
def test_a_clock_is_one_of_three_words(planned: Callable[..., Plan], clock: str) -> None:
    wrong = planned(CLOCK=clock).wrong
    assert wrong == (
        None
        if clock in ("", "auto", "tsc", "monotonic")
        else f"BRICKD_CLOCK must be auto, tsc or monotonic, not '{clock}'"
    )


def test_the_name_of_a_service_comes_from_the_host_environment_or_program(planned: Callable[..., Plan]) -> None:
    def service(**given: Any) -> bytes:
        return bytes(planned(**given).header["service"]).rstrip(b"\0")

    program = Path(sys.orig_argv[0]).name.encode()
    assert service() == service(SERVICE="") == program
    assert service(SERVICE="a b/c\n") == b"a b_c_"
    assert service(SERVICE="api", host={"service": b"engine"}) == b"engine"
    assert len(service(SERVICE="x" * 200)) == dtypes.dtype("header")["service"].itemsize - 1
