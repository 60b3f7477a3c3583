"""`brickd calibrate`: measured peaks, peaks that the user gives, and the file of peaks."""

from __future__ import annotations

import json
import math
import os
import stat
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st
from verbs import brickd, document

from brickd.analysis.roofline import calibration
from brickd.analysis.roofline.calibration import Calibration, contradictions, measure
from brickd.analysis.roofline.measure import Begun, Flops, Next, Plan, decode, encode, measured, processors
from brickd.analysis.roofline.peaks import (
    UNDISTURBED_MIN,
    Bandwidth,
    Device,
    Evidence,
    Kept,
    Skipped,
    merged,
)
from brickd.analysis.roofline.peaks_file import load, save
from brickd.analysis.roofline.rounds import Rounds
from brickd.analysis.roofline.working_sets import CpuCache, WorkingSet, caches, working_sets
from brickd.base.paths import runtime
from brickd.base.processors import Machine, cores, here, virtual
from brickd.base.state_file import framed
from brickd.cli import brickd as group
from brickd.errors import BrickdError, PeaksRefused
from brickd.screens import peak_words

numbers = st.floats(1, 1e30)
machines = st.builds(Machine, st.text(), st.integers(1, 4096))
levels = st.text().map(lambda name: f"L{name}")
bandwidths = st.builds(Bandwidth, levels, numbers, st.none() | st.integers(1, 2**60))
devices = st.builds(
    Device,
    name=st.text(),
    source=st.sampled_from(["measured", "given"]),
    at=st.text(),
    by=st.none() | st.text(),
    machine=st.none() | machines,
    flops_per_second=st.dictionaries(st.text().filter(lambda name: not name.startswith("L")), numbers),
    bandwidths=st.lists(bandwidths, unique_by=lambda each: each.level).map(tuple),
    skipped=st.lists(st.builds(Skipped, st.text(), st.text())).map(tuple),
)


def with_evidence(device: Device, evidence: Evidence) -> Device:
    if device.source == "given":
        return device
    each = {of: replace(evidence, undisturbed_per_second=rate / 2) for of, rate in device.rates.items() if rate >= 2}
    without = Evidence("", None, 3, disturbed_by={"waited": 3})
    return replace(device, evidence={of: each.get(of, without) for of in device.rates})


evidences = st.builds(
    Evidence,
    at=st.text(),
    others_processors=st.none() | st.floats(0, 1e6),
    rounds=st.integers(10, 2**40),
    undisturbed_rounds=st.integers(1, 10),
    disturbed_by=st.dictionaries(st.text(), st.integers(0, 2**40)),
)


def given_device(name: str = "given") -> Device:
    return Device(name, "given", "", None, None, {"any": 1.0}, (Bandwidth("memory", 1.0),))


def seen(rate: float | None, *, rounds: int = 20, others_processors: float | None = 0.0, at: str = "then") -> Evidence:
    """Return the evidence of rounds. If a rate is given, all rounds were undisturbed; if none is given, all were
    disturbed.
    """
    if rate is None:
        return Evidence(at, others_processors, rounds, disturbed_by={"waited": rounds})
    return Evidence(at, others_processors, rounds, rounds, rate)


def core(rates: dict[str, tuple[float, Evidence]], name: str = "core", **more: Any) -> Device:
    """Return a measured device. The rate with the name float32 is in FLOP/s; every other name is that of a level of
    memory.
    """
    return replace(
        Device(
            name,
            "measured",
            "now",
            "AVX2",
            Machine("a processor", 2),
            {of: rate for of, (rate, _) in rates.items() if of == "float32"},
            tuple(Bandwidth(of, rate) for of, (rate, _) in rates.items() if of != "float32"),
            evidence={of: evidence for of, (_, evidence) in rates.items()},
        ),
        **more,
    )


# ---- the file


@pytest.mark.ci
@given(st.lists(st.builds(with_evidence, devices, evidences), max_size=3))
def test_peaks_survive_saving_and_loading(tmp_path_factory: pytest.TempPathFactory, known: list[Device]) -> None:
    path = tmp_path_factory.mktemp("peaks") / "peaks"
    save(path, known)
    assert list(load(path)) == known


def test_a_missing_file_has_no_peaks(tmp_path: Path) -> None:
    assert load(tmp_path / "peaks") == ()
    assert load(tmp_path / "none" / "peaks") == ()


@given(st.data())
def test_a_changed_or_truncated_file_is_refused(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
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
def test_an_invalid_rate_is_refused_despite_a_valid_checksum(tmp_path: Path, wrong: object) -> None:
    answer = given_device().document() | {"flops_per_second": {"float32": wrong}}
    path = tmp_path / "peaks"
    path.write_bytes(framed("peaks", 1, [json.dumps({"devices": [answer]}).encode()]))
    with pytest.raises(PeaksRefused, match=r"expected a number"):
        load(path)


@pytest.mark.parametrize(
    "wrong",
    [
        {"bandwidths": 7},
        {"machine": {"cpu_model": "x", "cpus": 1e999}},
        {"bandwidths": [{"level": "L1", "bytes_per_second": 1, "working_set_bytes": "1"}]},
        {"bandwidths": [{"level": "L1", "bytes_per_second": 1, "working_set_bytes": -1}]},
        {"source": "guessed"},
        {"skipped": [7]},
        {"flops_per_second": {"memory": 1.0}},
    ],
)
def test_a_file_with_impossible_values_is_refused(tmp_path: Path, wrong: dict[str, object]) -> None:
    path = tmp_path / "peaks"
    path.write_bytes(framed("peaks", 1, [json.dumps({"devices": [given_device().document() | wrong]}).encode()]))
    with pytest.raises(PeaksRefused, match="has an invalid structure"):
        load(path)


def test_a_file_of_a_later_version_is_refused_and_not_replaced(prefix: str) -> None:
    path = runtime().state / "peaks"
    path.parent.mkdir(parents=True)
    path.write_bytes(framed("peaks", 2, [b"{}"]))
    found = brickd("calibrate", "--peak-flops", "1", "--bandwidth", "1")
    assert (found.returncode, found.stdout) == (2, "")
    assert "has version 2, this brickd reads version 1" in found.stderr
    assert path.read_bytes() == framed("peaks", 2, [b"{}"])


def test_a_failed_save_keeps_the_file_and_leaves_no_draft(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "peaks"
    save(path, [given_device()])
    before = path.read_bytes()

    def refuses(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", refuses)
    with pytest.raises(BrickdError, match=r"No space left on device \(set BRICKD_STATE_DIR"):
        save(path, [])
    assert (path.read_bytes(), os.listdir(tmp_path)) == (before, ["peaks"])


def old(**changes: object) -> dict[str, Any]:
    """Return a device as an early brickd 0.1.0 wrote it, without evidence."""
    device = core({"float32": (2.0, seen(2.0)), "memory": (1.0, seen(1.0))}).document()
    del device["evidence"]
    return device | changes


def test_rates_of_a_file_without_evidence_are_not_confirmed(tmp_path: Path) -> None:
    path = tmp_path / "peaks"
    path.write_bytes(framed("peaks", 1, [json.dumps({"devices": [old()]}).encode()]))
    (device,) = load(path)
    assert device.rates == {"float32": 2.0, "memory": 1.0}
    assert device.evidence["memory"] == Evidence("now", None)
    assert device.is_bound("float32")
    assert device.is_bound("memory")
    assert not device.under_load


@pytest.mark.parametrize(
    "wrong",
    [
        {"rounds": -1},
        {"rounds": 19},  # fewer rounds than undisturbed rounds
        {"undisturbed_rounds": 0},
        {"undisturbed_per_second": None},
        {"undisturbed_per_second": 2.1},  # more than the best rate of all rounds
        {"undisturbed_per_second": math.nan},
        {"disturbed_by": {"waited": -1}},
        {"disturbed_by": 7},
        {"others_processors": "much"},
        {"others_processors": 10**400},
        {"at": None},
    ],
)
def test_contradictory_evidence_is_refused(tmp_path: Path, wrong: dict[str, object]) -> None:
    device = core({"float32": (2.0, seen(2.0))}).document()
    device["evidence"]["float32"] |= wrong
    path = tmp_path / "peaks"
    path.write_bytes(framed("peaks", 1, [json.dumps({"devices": [device]}).encode()]))
    with pytest.raises(PeaksRefused, match=r"has an invalid structure|undisturbed rounds with a best rate"):
        load(path)


# ---- confirmed rates, and rates that replace others


@pytest.mark.parametrize(
    ("evidence", "bound"),
    [
        (seen(100.0), False),
        (seen(98.0), False),
        (seen(97.9), True),
        (seen(100.0, rounds=UNDISTURBED_MIN), False),
        (seen(100.0, rounds=UNDISTURBED_MIN - 1), True),
        (seen(None), True),
        (Evidence("then", None), True),
    ],
)
def test_a_rate_above_all_undisturbed_rounds_is_a_lower_bound(evidence: Evidence, bound: bool) -> None:
    device = core({"float32": (100.0, evidence)})
    assert device.is_bound("float32") is bound
    assert device.document()["evidence"]["float32"]["lower_bound"] is bound
    assert given_device().is_bound("any") is False


@pytest.mark.parametrize(
    ("processors", "under_load"), [(None, False), (0.0, False), (0.49, False), (0.5, True), (6.0, True)]
)
def test_other_work_of_half_a_processor_or_more_is_load(processors: float | None, under_load: bool) -> None:
    assert core({"L1": (1.0, seen(1.0, others_processors=processors))}).under_load is under_load


def test_a_lower_rate_never_replaces_a_higher_one_and_rounds_add_up() -> None:
    before = core({"float32": (9.0, seen(9.0)), "L1": (5.0, seen(5.0))}, at="then")
    now = core({"float32": (4.0, seen(4.0, at="now")), "L1": (6.0, seen(None, at="now", others_processors=50.0))})
    (found,), kept = merged([now], [before])
    assert found.rates == {"float32": 9.0, "L1": 6.0}
    assert found.at == "now"
    assert kept == [Kept("core", "float32", 9.0, 4.0, "then")]
    assert found.evidence["float32"] == Evidence("then", 0.0, 40, 40, 9.0)
    assert found.evidence["L1"] == Evidence("now", 50.0, 40, 20, 5.0, {"waited": 20})
    assert not found.is_bound("float32")
    assert found.is_bound("L1"), "no undisturbed round reached the rate 6"


def test_a_rate_not_measured_this_time_is_kept() -> None:
    before = core({"L1": (5.0, seen(5.0)), "L2": (3.0, seen(3.0)), "memory": (1.0, seen(1.0))})
    now = core({"L1": (5.0, seen(5.0, at="now")), "memory": (2.0, seen(2.0))}, skipped=(Skipped("L2", "no room"),))
    (found,), kept = merged([now], [before])
    assert [each.level for each in found.bandwidths] == ["L1", "L2", "memory"]
    assert found.evidence["L1"].at == "now"
    assert found.skipped == ()
    assert kept == [Kept("core", "L2", 3.0, None, "then")]


@pytest.mark.parametrize(
    ("name", "changes", "rate"),
    [
        ("core", {}, 9.0),
        ("core", {"by": "numpy"}, 9.0),
        ("core", {"machine": Machine("a processor", 4)}, 4.0),
        ("core", {"machine": Machine("another", 2)}, 4.0),
        ("core", {"name": "machine"}, 4.0),
        ("gpu0", {"by": "AVX2"}, 9.0),
        ("gpu0", {"by": "another GPU"}, 4.0),
        ("core", {"source": "given"}, 4.0),
    ],
)
def test_only_the_same_device_of_the_same_machine_keeps_its_rates(
    name: str, changes: dict[str, Any], rate: float
) -> None:
    before = replace(core({"float32": (9.0, seen(9.0))}, name), **changes)
    found, _ = merged([core({"float32": (4.0, seen(4.0))}, name)], [before])
    assert [(each.name, each.rates["float32"]) for each in found] == [(name, rate)]


def test_measuring_drops_obsolete_devices_and_keeps_given_peaks() -> None:
    known = [core({}), core({}, "old"), given_device("tpu")]
    assert [each.name for each in merged([core({})], known)[0]] == ["core", "tpu"]
    assert [each.name for each in merged([given_device("tpu")], known)[0]] == ["tpu", "core", "old"]


def test_all_cores_slower_than_one_core_is_a_contradiction() -> None:
    one = core({"float32": (100.0, seen(100.0)), "L1": (100.0, seen(100.0)), "L2": (5.0, seen(5.0))})
    less = core({"float32": (94.9, seen(94.9)), "L1": (95.0, seen(95.0))}, "machine")
    assert contradictions([one, less]) == ["float32: all cores reach 94.9 per second, one core reaches 100"]
    assert contradictions([one]) == contradictions([less]) == []
    assert contradictions([one, replace(less, source="given")]) == []


# ---- measurements


@pytest.mark.ci
def test_processors_report_each_type_and_level_or_the_reason_why_not() -> None:
    cpus = sorted(os.sched_getaffinity(0))[:1]
    plan = Plan(1, 2**62)
    cache = CpuCache("L1", 8192, frozenset({*cpus, 4095}))
    reported = list(processors("core", cpus, plan, [WorkingSet("L1", 4096), Skipped("memory", "no room")], [cache]))
    assert isinstance(reported[0], Begun)
    assert [each.type for each in reported if isinstance(each, Flops)] == ["float32", "float64"]
    assert [each.what for each in reported if isinstance(each, Next)] == ["float32", "float64", "L1"]
    assert all(each.per_second > 0 for each in reported if isinstance(each, Flops))
    rounds = [each for each in reported if isinstance(each, Rounds)]
    assert [each.of for each in rounds] == ["float32", "float64", "L1"]
    assert rounds[-1].shared, "another processor uses this cache"
    assert reported[-1] == Skipped("memory", "no room")
    assert [decode(encode(each)) for each in reported] == reported


@pytest.mark.ci
@pytest.mark.parametrize(
    ("others", "shared"),
    [
        pytest.param(set(), False, id="none"),
        pytest.param({4095}, True, id="others"),
        pytest.param(None, True, id="unknown"),
    ],
)
def test_a_cache_used_by_other_processors_is_shared(others: set[int] | None, shared: bool) -> None:
    cpus = sorted(os.sched_getaffinity(0))[:1]
    cache = CpuCache("L1", 8192, frozenset() if others is None else frozenset({*cpus, *others}))
    (found,) = (
        each
        for each in processors("core", cpus, Plan(1, 2**62), [WorkingSet("L1", 4096)], [cache])
        if isinstance(each, Rounds) and each.of == "L1"
    )
    assert found.shared is shared


def test_after_the_time_limit_each_missing_figure_has_a_reason() -> None:
    cpus = sorted(os.sched_getaffinity(0))[:1]
    _, *reported = processors("core", cpus, Plan(1, 0), [WorkingSet("L1", 4096)], [])
    assert reported == [Skipped(of, "no time was left") for of in ("float32", "float64", "L1")]


def test_one_core_is_measured_on_one_processor_and_a_single_core_once() -> None:
    names = [each.name for each in measured("processors", Plan(1, 0)) if isinstance(each, Begun)]
    assert names == (["core"] if len(cores()) == 1 else ["core", "machine"])


def test_data_caches_are_listed_nearest_first(tmp_path: Path) -> None:
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
def test_each_working_set_fits_only_its_level_or_is_skipped_with_a_reason(
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


def lines(*, shared: bool, others_processors: float | None) -> Calibration:
    found = Calibration(virtual=False)
    found.add(Begun("core", "AVX2"))
    for of in ("float32", "L1"):
        found.add(Rounds(of, 2.0, 9, 7, 1.5, {"waited": 2}, shared, None if of == "float32" else others_processors))
        found.add(Flops(of, 2.0) if of == "float32" else Bandwidth(of, 2.0, 4))
    found.add(Skipped("memory", "room"))
    return found


def test_reports_of_measuring_programs_become_devices() -> None:
    found = lines(shared=False, others_processors=90.0)
    (device,) = found.devices
    assert (device.name, device.source, device.by, device.machine) == ("core", "measured", "AVX2", here())
    assert (device.flops_per_second, device.bandwidths) == ({"float32": 2.0}, (Bandwidth("L1", 2.0, 4),))
    assert device.skipped == (Skipped("memory", "room"),)
    without = Calibration(virtual=False)
    without.add(Skipped("gpu", "none"))
    assert (without.devices, without.skipped) == ([], [Skipped("gpu", "none")])


@pytest.mark.parametrize(
    ("shared", "others_processors", "confirmed"),
    [(False, 9.0, True), (True, 9.0, False), (True, 0.5, False), (True, 0.49, True), (True, None, True)],
)
def test_next_to_other_work_a_shared_unit_has_no_undisturbed_round(
    shared: bool, others_processors: float | None, confirmed: bool
) -> None:
    found = lines(shared=shared, others_processors=others_processors)
    disturbed = {"waited": 2} if confirmed else {"waited": 2, "shared": 7}
    expected = Evidence(found.devices[0].at, others_processors, 9, disturbed_by=disturbed)
    if confirmed:
        expected = replace(expected, undisturbed_rounds=7, undisturbed_per_second=1.5)
    assert found.evidence(found.devices[0]) == {"float32": expected, "L1": expected}


@pytest.mark.parametrize(
    ("virtual", "busy", "why"), [(True, 0.0, "virtual"), (True, 1.0, "shared"), (False, 0.0, None)]
)
def test_on_a_virtual_machine_memory_and_caches_between_cores_have_no_undisturbed_round(
    virtual: bool, busy: float, why: str | None
) -> None:
    found = Calibration(virtual)
    found.add(Begun("core", "AVX2"))
    for of in ("float32", "L1", "L2", "L3", "memory"):
        found.add(Rounds(of, 2.0, 9, 7, 1.5, {"waited": 2}, of in ("L3", "memory"), busy))
        found.add(Flops(of, 2.0) if of == "float32" else Bandwidth(of, 2.0, 4))
    disturbed = {of: dict(each.disturbed_by) for of, each in found.evidence(found.devices[0]).items()}
    own, between = {"waited": 2}, {"waited": 2} | ({why: 7} if why else {})
    assert disturbed == {"float32": own, "L1": own, "L2": own, "L3": between, "memory": between}


def replace_programs(folder: Path, monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    """Replace the measuring program by a shell script that may take as long as it wants, and hide the GPU."""
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setattr(calibration, "_QUICK_SECONDS", dict.fromkeys(calibration._QUICK_SECONDS, 1000.0))
    path = folder / "program"
    path.write_text(f"#!/bin/sh\n{program}\n")
    path.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(path))


def rounds(rate: float, undisturbed: int) -> Rounds:
    reached = rate if undisturbed else None
    return Rounds("float32", rate, 30, undisturbed, reached, {"waited": 30 - undisturbed}, False, 1.4)


def printing(*devices: tuple[str, float, int]) -> str:
    """Return a program that reports devices: name, float32 rate, and how many of 30 rounds were undisturbed."""
    text = [
        line
        for name, rate, undisturbed in devices
        for line in (
            Begun(name, "AVX2"),
            rounds(rate, undisturbed),
            Flops("float32", rate),
        )
    ]
    return "\n".join(["cat <<'END'", *map(encode, text), "END"])


def test_a_killed_program_loses_only_unreported_results_and_that_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    died = [Skipped("the rest", "the program that measures processors was ended by SIGKILL")]
    replace_programs(tmp_path, monkeypatch, f"{printing(('core', 2.0, 9), ('machine', 3.0, 9))}\nkill -9 $$")
    core, machine = measure(quick=True, progress=lambda *_: None).devices
    assert (core.rates, core.skipped) == ({"float32": 2.0}, ())
    assert (machine.rates, list(machine.skipped)) == ({"float32": 3.0}, died)
    replace_programs(tmp_path, monkeypatch, "kill -9 $$")
    assert measure(quick=True, progress=lambda *_: None).skipped[:1] == died


def test_rates_are_judged_by_whether_this_machine_is_virtual(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figure = encode(Rounds("L3", 2.0, 30, 30, 2.0, {}, False, 0.0)), encode(Bandwidth("L3", 2.0, 4))
    replace_programs(tmp_path, monkeypatch, "\n".join(["cat <<'END'", encode(Begun("core", "AVX2")), *figure, "END"]))
    core, *_ = measure(quick=True, progress=lambda *_: None).devices
    assert core.is_bound("L3") is virtual()


def test_a_program_over_the_time_limit_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace_programs(tmp_path, monkeypatch, f"{printing(('core', 2.0, 9))}\nexec sleep 1000")
    monkeypatch.setattr(calibration, "_UNTIL_SECONDS", {"processors": 0.3})
    monkeypatch.setattr(calibration, "_GRACE_SECONDS", 0.0)
    core, *_ = measure(quick=False, progress=lambda *_: None).devices
    assert core.skipped == (Skipped("the rest", "the program that measures processors took too long"),)


def test_all_programs_together_end_within_half_a_minute() -> None:
    assert max(calibration._UNTIL_SECONDS.values()) + calibration._GRACE_SECONDS < 30
    assert max(calibration._QUICK_SECONDS.values()) <= 10


def test_a_measuring_program_is_outside_of_the_terminals_process_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading = "read -r pid name state parent group rest < /proc/self/stat"
    text = printing(("core", 2.0, 29)).replace("AVX2", "$((group == $$))").replace("'END'", "END")
    replace_programs(tmp_path, monkeypatch, f"{reading}\n{text}")
    assert measure(quick=True, progress=lambda *_: None).devices[0].by == "1"


# ---- the verb


@pytest.mark.ci
def test_given_peaks_are_shown_as_given(prefix: str) -> None:
    answer = document("calibrate", "--device", "h\x1b[2J", "--peak-flops", "1e15", "--bandwidth", "3.35e12")
    (device,) = answer["devices"]
    assert (device["name"], device["source"], device["machine"], device["by"]) == ("h\x1b[2J", "given", None, None)
    assert device["flops_per_second"] == {"any": 1e15}
    assert device["bandwidths"] == [{"level": "memory", "bytes_per_second": 3.35e12, "working_set_bytes": None}]
    for flops, bandwidth in (("1e12", "1e9"), ("1T", "1G"), ("1TFLOP/s", "1GB/s"), ("0.001P", "1000 MB/s")):
        answer = document("calibrate", "--peak-flops", flops, "--bandwidth", bandwidth)
        given = next(each for each in answer["devices"] if each["name"] == "given")
        assert (given["flops_per_second"], given["bandwidths"][0]["bytes_per_second"]) == ({"any": 1e12}, 1e9)
    screen = brickd("calibrate", "--peak-flops", "1e12", "--bandwidth", "1e9").stdout.splitlines()
    assert [line.split()[0] for line in screen] == ["DEVICE", "given", "given", "h\\x1b[2J", "h\\x1b[2J"]
    assert all(line.endswith("given") for line in screen[1:])
    path = Path(answer["path"])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(path.parent) == ["peaks"]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--peak-flops", "1e12"], "expected --peak-flops and --bandwidth together"),
        (["--device", "tpu"], "expected --peak-flops and --bandwidth together"),
        (["--device", "", "--peak-flops", "1", "--bandwidth", "1"], "--device is empty, expected a name"),
        (["--peak-flops", "1e-5", "--bandwidth", "1"], "1e-5 is not a rate of 1 to 1e30 FLOP/s, such as 1.2e12, 1.2T"),
        (["--peak-flops", "", "--bandwidth", "1"], "'--peak-flops': '' is not a rate of 1 to 1e30 FLOP/s"),
        (["--peak-flops", "0", "--bandwidth", "1"], "0 is not a rate of 1 to 1e30 FLOP/s"),
        (["--peak-flops", "inf", "--bandwidth", "1"], "inf is not a rate of 1 to 1e30 FLOP/s"),
        (["--peak-flops", "much", "--bandwidth", "1"], "much is not a rate of 1 to 1e30 FLOP/s"),
        (["--peak-flops", "1TB/s", "--bandwidth", "1"], "1TB/s is not a rate of 1 to 1e30 FLOP/s"),
        (["--peak-flops", "1", "--bandwidth", "9e13E"], "9e13E is not a rate of 1 to 1e30 B/s"),
        (["--peak-flops", "1", "--bandwidth", "9" * 400], "is not a rate of 1 to 1e30 B/s"),
        (["--quick", "--peak-flops", "1", "--bandwidth", "1"], "give one of them"),
        (["--replace", "--peak-flops", "1", "--bandwidth", "1"], "give one of them"),
    ],
)
def test_incomplete_given_peaks_are_refused(prefix: str, arguments: list[str], text: str) -> None:
    found = brickd("calibrate", *arguments)
    assert (found.returncode, found.stdout) == (2, "")
    assert text in found.stderr
    assert not (runtime().state / "peaks").exists()


def test_a_damaged_file_is_refused_by_roofline_and_replaced_by_calibrate(prefix: str) -> None:
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


def test_nothing_is_measured_where_peaks_cannot_be_saved(prefix: str) -> None:
    found = brickd("calibrate", BRICKD_STATE_DIR="/proc/none", PATH="")
    assert (found.returncode, found.stdout) == (2, "")
    assert "/proc/none/peaks: cannot be written: No such file or directory (set BRICKD_STATE_DIR" in found.stderr
    assert "calibrating" not in found.stderr


def calibrated(*arguments: str) -> Result:
    return CliRunner().invoke(group, ["calibrate", *arguments], env={"COLUMNS": "200"})


def test_all_cores_below_one_core_fails_and_keeps_the_known_peaks(
    prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = runtime().state / "peaks"
    save(path, [given_device()])
    replace_programs(tmp_path, monkeypatch, printing(("core", 2e9, 29), ("machine", 1e9, 0)))
    found = calibrated()
    assert isinstance(found.exception, BrickdError)
    assert found.exception.exit_code == 2
    assert str(found.exception) == (
        "the results contradict each other: float32: all cores reach 1e+09 per second, one core reaches 2e+09: other"
        " work took 1.4 processors; the saved peaks are unchanged: repeat it on a quieter machine"
    )
    assert [each.name for each in load(path)] == ["given"]


@pytest.mark.ci
def test_a_worse_result_is_reported_and_replaces_a_better_one_only_on_request(
    prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = runtime().state / "peaks"
    for rate, arguments, kept in ((9e9, (), 9e9), (4e9, (), 9e9), (4e9, ("--replace",), 4e9)):
        replace_programs(tmp_path, monkeypatch, printing(("core", rate, 29), ("machine", 2 * rate, 29)))
        found = calibrated(*arguments)
        assert found.exception is None
        assert load(path)[0].rates == {"float32": kept}
        assert ("core, float32: the higher result of" in found.output) is (rate < kept)
        assert ("to replace higher results of earlier measurements: brickd calibrate --replace" in found.output) is (
            rate < kept
        )
    replace_programs(tmp_path, monkeypatch, printing(("core", 1e9, 29), ("machine", 2e9, 29)))
    (first, second) = json.loads(calibrated("--json").output)["kept"]
    assert (first["device"], first["of"], first["kept_per_second"], first["measured_per_second"]) == (
        "core", "float32", 4e9, 1e9,
    )  # fmt: skip
    assert second["device"] == "machine"


@pytest.mark.parametrize(
    ("evidence", "why"),
    [
        (Evidence("", None), "an earlier version of brickd, which did not check for other work, measured it"),
        (seen(None), "none of 20 rounds was undisturbed: 20 waited for a processor"),
        (
            Evidence("", 0.0, 9, disturbed_by={"stolen": 4, "throttled": 5}),
            "none of 9 rounds was undisturbed: 5 were throttled by a limit of a control group, 4 lost time to the"
            " hypervisor",
        ),
        (seen(100.0, rounds=1), "only 1 of 1 round was undisturbed"),
        (
            Evidence("", 0.0, 24, 19, 100.0, {"shared": 5}),
            "only 19 of 24 rounds were undisturbed: 5 ran next to other work that shares a core, cache or memory",
        ),
        (
            Evidence("", 0.0, 24, 20, 90.0, {"waited": 4}),
            "the best of 24 rounds was disturbed: 4 waited for a processor",
        ),
        (
            Evidence("", 0.0, 3, disturbed_by={"waited": 1, "virtual": 2}),
            "none of 3 rounds was undisturbed: 2 cannot be checked, because other virtual machines may share the"
            " hardware, 1 waited for a processor",
        ),
        (
            Evidence("", 0.0, 3, disturbed_by={"unseen": 3}),
            "none of 3 rounds was undisturbed: 3 cannot be checked, because other work on a GPU is not visible",
        ),
    ],
)
def test_a_lower_bound_has_its_reason_and_the_next_command(evidence: Evidence, why: str) -> None:
    device = core({"float32": (100.0, evidence), "L1": (100.0, seen(100.0))}).document()
    again = "to measure lower bounds again, with less other work: brickd calibrate"
    if {"unseen", "virtual"} & evidence.disturbed_by.keys():  # another measurement would not help
        again = "to use the peaks of a data sheet: brickd calibrate --device NAME --peak-flops N --bandwidth N"
    assert peak_words.bounds(device) == [f"core, float32: a lower bound: {why}", again]
    assert peak_words.bounds(device, ("L1",)) == []


def test_measuring_again_keeps_given_peaks(prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(runtime().state / "peaks", [given_device("tpu")])
    replace_programs(tmp_path, monkeypatch, printing(("core", 1e9, 29), ("machine", 2e9, 29)))
    assert calibrated("--replace").exception is None
    assert [each.name for each in load(runtime().state / "peaks")] == ["core", "machine", "tpu"]


def test_peaks_of_another_machine_are_replaced_only_on_request(
    prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = runtime().state / "peaks"
    replace_programs(tmp_path, monkeypatch, printing(("core", 1e9, 29), ("machine", 2e9, 29)))
    save(path, [core({"float32": (9e9, seen(9e9))}, machine=Machine("a processor", 4))])
    found = calibrated()
    assert isinstance(found.exception, BrickdError)
    assert str(found.exception).startswith("the saved peaks are of another machine (a processor, 4 cores), ")
    assert str(found.exception).endswith(": replace them (brickd calibrate --replace)")
    assert load(path)[0].rates == {"float32": 9e9}
    assert calibrated("--peak-flops", "1", "--bandwidth", "1").exception is None
    assert calibrated("--replace").exception is None
    assert [(each.name, each.machine) for each in load(path)] == [
        ("core", here()),
        ("machine", here()),
        ("given", None),
    ]


def test_calibrate_marks_a_lower_bound_and_warns_about_load(
    prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace_programs(tmp_path, monkeypatch, printing(("core", 1e9, 29), ("machine", 2e9, 0)))
    lines = calibrated().output.splitlines()
    assert [line.split() for line in lines[1:3]] == [
        ["core", "float32", "1.0GFLOP/s", "29", "of", "30", "measured"],
        ["machine", "float32", "≥", "2.0GFLOP/s", "0", "of", "30", "lower", "bound"],
    ]
    assert "under load: other work took 1.4 processors" in lines[3]
    assert lines[5:7] == [
        "machine, float32: a lower bound: none of 30 rounds was undisturbed: 30 waited for a processor",
        "to measure lower bounds again, with less other work: brickd calibrate",
    ]


@pytest.mark.slow
def test_a_measured_machine_has_a_peak_of_each_kind(prefix: str) -> None:
    found = brickd("calibrate", "--quick", "--json")
    if found.returncode:  # the measurement may fail if much other work runs
        assert "the results contradict each other" in found.stderr
        return
    answer = json.loads(found.stdout)
    devices = {each["name"]: each for each in answer["devices"]}
    assert {"core", "machine"} <= set(devices)
    for name in ("core", "machine"):
        device = devices[name]
        assert 0 <= device["others_processors"] <= len(os.sched_getaffinity(0))
        assert set(device["evidence"]) == {
            *device["flops_per_second"],
            *(each["level"] for each in device["bandwidths"]),
        }
        assert all(each["rounds"] for each in device["evidence"].values())
        assert (device["source"], device["machine"]["cpus"]) == ("measured", len(cores()))
        reported = {*device["evidence"], *(each["what"] for each in device["skipped"])}
        assert reported >= {"float32", "float64", "memory"}
    assert "gpu0" in devices or [each["what"] for each in answer["skipped"]] == ["gpu"]
    assert document("roofline", "--level", devices["machine"]["bandwidths"][-1]["level"])["bricks"] == []
