"""`brickd calibrate`: measured and given peaks, and their file."""

from __future__ import annotations

import json
import math
import mmap
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from verbs import brickd, document

from brickd.analysis.roofline import _peaks
from brickd.analysis.roofline.calibration import Calibration, _Use, measure
from brickd.analysis.roofline.measure import (
    Begun,
    Flops,
    Next,
    Plan,
    bandwidth,
    decode,
    encode,
    gpus,
    processors,
)
from brickd.analysis.roofline.peaks import Bandwidth, Device, Skipped, beside, load, save
from brickd.analysis.roofline.working_sets import CpuCache, WorkingSet, caches, working_sets
from brickd.base.machine import Machine, here
from brickd.base.paths import runtime
from brickd.base.state_file import framed
from brickd.errors import BrickdError, PeaksRefused

TINY = Plan(matrix=8, gpu_matrix=8, rounds=2, round_ns=1_000, caches=2)

numbers = st.floats(1, 1e30)
machines = st.builds(Machine, st.text(), st.integers(1, 4096))
bandwidths = st.builds(Bandwidth, st.text(), numbers, st.none() | st.integers(1, 2**60))
devices = st.builds(
    Device,
    name=st.text(),
    source=st.sampled_from(["measured", "given"]),
    at=st.text(),
    by=st.none() | st.text(),
    machine=st.none() | machines,
    others_percent=st.none() | st.floats(0, 1e6),
    flops_per_second=st.dictionaries(st.text(), numbers),
    bandwidths=st.lists(bandwidths).map(tuple),
    skipped=st.lists(st.builds(Skipped, st.text(), st.text())).map(tuple),
)


def given_device(name: str = "given", source: str = "given") -> Device:
    assert source in ("given", "measured")
    return Device(name, source, "", None, None, None, {"any": 1.0}, (Bandwidth("memory", 1.0),))  # type: ignore[arg-type]


# ---- the file


@given(st.lists(devices, max_size=3))
def test_what_is_loaded_is_what_was_saved(tmp_path_factory: pytest.TempPathFactory, known: list[Device]) -> None:
    path = tmp_path_factory.mktemp("peaks") / "peaks"
    save(path, known)
    assert list(load(path)) == known


def test_where_there_is_no_file_nothing_is_known(tmp_path: Path) -> None:
    assert load(tmp_path / "peaks") == ()
    assert load(tmp_path / "none" / "peaks") == ()


@given(st.data())
def test_a_file_with_a_byte_changed_or_cut_is_refused(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("peaks") / "peaks"
    save(path, [given_device()])
    content = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        content = content[:place]
    else:
        content[place] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content)
    with pytest.raises(PeaksRefused, match="brickd calibrate"):
        load(path)


@pytest.mark.parametrize("wrong", [0, -1, 1e-300, 1e31, 10**400, math.nan, math.inf, "1", None, True])
def test_a_rate_that_is_none_is_refused_though_the_file_is_whole(tmp_path: Path, wrong: object) -> None:
    answer = given_device().document() | {"flops_per_second": {"float32": wrong}}
    path = tmp_path / "peaks"
    path.write_bytes(framed("peaks", 1, [json.dumps({"devices": [answer]}).encode()]))
    with pytest.raises(PeaksRefused, match=r"expected a number"):
        load(path)


@pytest.mark.parametrize(
    "wrong",
    [
        {"others_percent": 10**400},
        {"others_percent": "nan"},
        {"machine": {"cpu_model": "x", "cpus": 1e999}},
        {"bandwidths": [{"level": "L1", "bytes_per_second": 1, "working_set_bytes": "1"}]},
        {"bandwidths": [{"level": "L1", "bytes_per_second": 1, "working_set_bytes": -1}]},
        {"source": "guessed"},
        {"skipped": [7]},
    ],
)
def test_a_file_that_holds_what_it_cannot_is_refused(tmp_path: Path, wrong: dict[str, object]) -> None:
    path = tmp_path / "peaks"
    path.write_bytes(framed("peaks", 1, [json.dumps({"devices": [given_device().document() | wrong]}).encode()]))
    with pytest.raises(PeaksRefused, match="has an invalid structure"):
        load(path)


def test_a_file_of_a_later_brickd_is_refused_and_not_replaced(prefix: str) -> None:
    path = runtime().state / "peaks"
    path.parent.mkdir(parents=True)
    path.write_bytes(framed("peaks", 2, [b"{}"]))
    found = brickd("calibrate", "--peak-flops", "1", "--bandwidth", "1")
    assert (found.returncode, found.stdout) == (2, "")
    assert "has version 2, this brickd reads version 1" in found.stderr
    assert path.read_bytes() == framed("peaks", 2, [b"{}"])


def test_a_file_that_cannot_be_replaced_stays_as_it_was_and_no_draft_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "peaks"
    save(path, [given_device()])
    before = path.read_bytes()

    def refuses(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", refuses)
    with pytest.raises(BrickdError, match=r"No space left on device \(set BRICKD_STATE_DIR"):
        save(path, [])
    assert (path.read_bytes(), os.listdir(tmp_path)) == (before, ["peaks"])


def test_what_is_measured_takes_the_place_of_all_that_was_and_leaves_what_was_given() -> None:
    known = [given_device("core", "measured"), given_device("old", "measured"), given_device("tpu")]
    found = beside([given_device("core", "measured")], known)
    assert [each.name for each in found] == ["core", "tpu"]
    assert [each.name for each in beside([given_device("tpu")], known)] == ["tpu", "core", "old"]


# ---- what is measured


def test_of_a_buffer_that_is_read_it_tells_how_much_and_from_when_to_when() -> None:
    with mmap.mmap(-1, 4096) as buffer:
        size_bytes, begun_ns, ended_ns = _peaks.reads(buffer, 1000)
    assert size_bytes > 0
    assert size_bytes % 4096 == 0
    assert ended_ns - begun_ns >= 1000


@pytest.mark.parametrize(
    ("size", "offset", "duration"), [(0, 0, 1), (100, 0, 1), (256, 8, 1), (256, 0, -1), (256, 0, 2**40)]
)
def test_a_buffer_that_cannot_be_read_so_is_refused(size: int, offset: int, duration: int) -> None:
    with (
        mmap.mmap(-1, 4096) as buffer,
        memoryview(buffer) as whole,
        whole[offset : offset + size] as part,
        pytest.raises(ValueError, match="a multiple of 256 bytes that begins at one of 64"),
    ):
        _peaks.reads(part, duration)


def test_threads_that_read_together_give_a_rate() -> None:
    assert bandwidth(4096, sorted(os.sched_getaffinity(0)), TINY) > 0


def test_a_thread_that_gets_no_memory_ends_them_all() -> None:
    with pytest.raises((OSError, ValueError, OverflowError)):
        bandwidth(1 << 62, sorted(os.sched_getaffinity(0)), TINY)


def test_processors_tell_each_type_and_each_level_or_why_not() -> None:
    cpus = sorted(os.sched_getaffinity(0))[:1]
    reported = list(processors("core", cpus, TINY, [WorkingSet("L1", 4096), Skipped("memory", "no room")]))
    assert isinstance(reported[0], Begun)
    assert reported[0].by.startswith("numpy ")
    assert [each.type for each in reported if isinstance(each, Flops)] == ["float32", "float64"]
    assert [each.what for each in reported if isinstance(each, Next)] == ["float32", "float64", "L1"]
    assert all(each.per_second > 0 for each in reported if isinstance(each, Flops))
    assert reported[-1] == Skipped("memory", "no room")
    assert [decode(encode(each)) for each in reported] == reported


def test_what_there_is_of_a_gpu_is_told_or_why_there_is_none() -> None:
    reported = list(gpus(TINY))
    assert reported
    assert all(each.why for each in reported if isinstance(each, Skipped))


def test_caches_are_those_of_data_the_nearest_first(tmp_path: Path) -> None:
    for index, (kind, level, size) in enumerate(
        [("Unified", "2", "2048K"), ("Data", "1", "48K"), ("Instruction", "1", "64K"), ("Unified", "?", "1K")]
    ):
        folder = tmp_path / "cpu3" / "cache" / f"index{index}"
        folder.mkdir(parents=True)
        for name, text in (("type", kind), ("level", level), ("size", size), ("shared_cpu_list", "3,8-9")):
            (folder / name).write_text(text + "\n")
    shared = frozenset({3, 8, 9})
    assert caches(3, tmp_path) == [CpuCache("L1", 48 << 10, shared), CpuCache("L2", 2 << 20, shared)]
    assert caches(4, tmp_path) == []


@given(
    st.lists(st.tuples(st.integers(0, 1 << 32), st.sets(st.integers(0, 7), max_size=8)), max_size=4),
    st.sets(st.integers(0, 7), min_size=1),
    st.integers(2, 4),
    st.integers(0, 1 << 36),
)
def test_each_working_set_fits_its_level_and_not_the_one_before_or_is_skipped_with_a_reason(
    made_up: list[tuple[int, set[int]]], cpus: set[int], factor: int, room: int
) -> None:
    found = [CpuCache(f"L{n}", size, frozenset(shared)) for n, (size, shared) in enumerate(made_up, 1)]
    sets = list(working_sets(found, cpus, factor, room))
    levels = [each.level if isinstance(each, WorkingSet) else each.what for each in sets]
    assert levels == [*(each.level for each in found), "memory"]
    below = 0
    for cache, each in zip(found, sets, strict=False):
        mine = cache.size_bytes // max(1, len(cache.cpus & cpus))
        if isinstance(each, WorkingSet) and each.size_bytes > 4096:
            assert each.size_bytes % 4096 == 0
            assert below - 4096 < each.size_bytes <= mine
            assert each.size_bytes * len(cpus) <= room
        below = max(below, mine)
    if isinstance(sets[-1], WorkingSet) and below:
        assert sets[-1].size_bytes > factor * below - 4096


def test_what_programs_say_becomes_devices() -> None:
    found = Calibration()
    found.add(Skipped("gpu", "none"))
    for each in (Begun("core", "a library"), Flops("float32", 2.0), Bandwidth("L1", 1.0, 4), Skipped("memory", "room")):
        found.add(each)
    (core,) = found.devices
    assert (core.name, core.source, core.by, core.machine) == ("core", "measured", "a library", here())
    assert (core.flops_per_second, core.bandwidths) == ({"float32": 2.0}, (Bandwidth("L1", 1.0, 4),))
    assert (core.skipped, found.skipped) == ((Skipped("memory", "room"),), [Skipped("gpu", "none")])


def test_what_others_took_meanwhile_is_what_was_taken_and_not_by_us() -> None:
    before = _Use(passed=100.0, taken=50.0, ours=10.0)
    assert _Use(passed=120.0, taken=65.0, ours=20.0).others_percent(before) == 25
    assert _Use(passed=120.0, taken=60.0, ours=21.0).others_percent(before) == 0
    assert before.others_percent(before) is None
    now = _Use.now()
    assert now.passed > now.taken > 0


@pytest.mark.parametrize("text", ["", '["Begun","d","by"]', '["Begun","d","by"]\n["Flops","float32",2.0]'])
def test_a_program_that_is_killed_costs_what_it_had_not_told_which_is_said(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{text}\nEND\nkill -9 $$\n".replace("\n\n", "\n"))
    program.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(program))
    found = measure(quick=True, progress=lambda *_: None)
    assert [each.flops_per_second for each in found.devices] == ([{"float32": 2.0}] * 3 if "Flops" in text else [])
    skipped = [*found.skipped, *(each for device in found.devices for each in device.skipped)]
    assert [each.why for each in skipped] == ["the program that measured it was ended by SIGKILL"] * 3
    assert skipped[0].what == ("d, core" if text.endswith('"by"]') else "core")


def test_a_program_that_measures_is_not_of_the_group_to_which_a_terminal_sends_ctrl_c(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "program"
    program.write_text("""#!/bin/sh
read -r pid name state parent group rest < /proc/self/stat
echo '["Begun","d","'$((group == $$))'"]'
echo '["Flops","float32",2.0]'
""")
    program.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(program))
    assert [each.by for each in measure(quick=True, progress=lambda *_: None).devices] == ["1"] * 3


# ---- the verb


def test_peaks_that_are_given_are_shown_as_given(prefix: str) -> None:
    answer = document("calibrate", "--device", "h\x1b[2J", "--peak-flops", "1e15", "--bandwidth", "3.35e12")
    (device,) = answer["devices"]
    assert (device["name"], device["source"], device["machine"], device["by"]) == ("h\x1b[2J", "given", None, None)
    assert device["flops_per_second"] == {"any": 1e15}
    assert device["bandwidths"] == [{"level": "memory", "bytes_per_second": 3.35e12, "working_set_bytes": None}]
    screen = brickd("calibrate", "--peak-flops", "1e12", "--bandwidth", "1e9").stdout.splitlines()
    assert [line.split()[0] for line in screen] == ["DEVICE", "given", "given", "h\\x1b[2J", "h\\x1b[2J"]
    assert all(line.endswith("given") for line in screen[1:])
    path = Path(answer["path"])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(path.parent) == ["peaks"]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--peak-flops", "1e12"], "expected both --peak-flops and --bandwidth"),
        (["--device", "tpu"], "expected both --peak-flops and --bandwidth"),
        (["--device", "", "--peak-flops", "1", "--bandwidth", "1"], "--device is empty, expected a name"),
        (["--peak-flops", "1e-5", "--bandwidth", "1"], "1e-5 is not a number from 1 to 1e30"),
        (["--peak-flops", "0", "--bandwidth", "1"], "0 is not a number from 1 to 1e30"),
        (["--peak-flops", "inf", "--bandwidth", "1"], "inf is not a number from 1 to 1e30"),
        (["--peak-flops", "much", "--bandwidth", "1"], "much is not a number from 1 to 1e30"),
        (["--quick", "--peak-flops", "1", "--bandwidth", "1"], "give one of them"),
    ],
)
def test_what_is_given_is_whole_or_refused(prefix: str, arguments: list[str], text: str) -> None:
    found = brickd("calibrate", *arguments)
    assert (found.returncode, found.stdout) == (2, "")
    assert text in found.stderr
    assert not (runtime().state / "peaks").exists()


def test_a_damaged_file_is_refused_where_it_is_asked_and_replaced_where_peaks_are_found(prefix: str) -> None:
    path = runtime().state / "peaks"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"nonsense")
    asked = brickd("roofline")
    assert (asked.returncode, asked.stdout) == (2, "")
    assert "is not a peaks file of brickd" in asked.stderr
    assert "brickd calibrate" in asked.stderr
    found = brickd("calibrate", "--peak-flops", "1", "--bandwidth", "1")
    assert found.returncode == 0
    assert "this measurement replaces it" in found.stderr
    assert [each.name for each in load(path)] == ["given"]


def test_where_peaks_cannot_be_kept_nothing_is_measured(prefix: str) -> None:
    found = brickd("calibrate", BRICKD_STATE_DIR="/proc/none", PATH="")
    assert (found.returncode, found.stdout) == (2, "")
    assert "/proc/none/peaks: cannot be written: No such file or directory (set BRICKD_STATE_DIR" in found.stderr
    assert "calibrating" not in found.stderr


def test_a_program_of_one_core_is_bound_to_it_before_anything_asks_how_many_there_are() -> None:
    code = (
        "import os, sys; from brickd.analysis.roofline.measure import Plan, measured;"
        "next(measured('core', Plan(matrix=8, rounds=1))); print(len(os.sched_getaffinity(0)))"
    )
    result = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "1\n"


@pytest.mark.slow
def test_a_machine_that_is_measured_has_a_peak_of_each_kind(prefix: str) -> None:
    answer = document("calibrate", "--quick")
    devices = {each["name"]: each for each in answer["devices"]}
    assert {"core", "machine"} <= set(devices)
    for name in ("core", "machine"):
        device = devices[name]
        assert 0 <= device["others_percent"] <= 100
        assert (device["source"], device["machine"]["cpus"]) == ("measured", len(os.sched_getaffinity(0)))
        assert set(device["flops_per_second"]) == {"float32", "float64"}
        reported = [each["level"] for each in device["bandwidths"]] + [each["what"] for each in device["skipped"]]
        assert "memory" in reported
    assert "gpu0" in devices or [each["what"] for each in answer["skipped"]] == ["gpu"]
    assert document("roofline", "--level", devices["machine"]["bandwidths"][-1]["level"])["bricks"] == []
