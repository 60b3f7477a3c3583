"""`brickd roofline`: how far bricks are below the limits of a device, and bricks that cannot be rated."""

from __future__ import annotations

import itertools
import json
import math
import os
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from faults import Start
from hypothesis import given
from hypothesis import strategies as st
from made_up_workers import HOSTILE
from running import running
from test_record import recording
from verbs import brickd, document, sheet, started

from brickd.analysis.roofline.peaks import Bandwidth, Device, Evidence
from brickd.analysis.roofline.peaks_file import save
from brickd.analysis.roofline.roofline import Roof, chosen, place, roof_of
from brickd.analysis.roofline.roofline import document as roofline_document
from brickd.base.paths import runtime
from brickd.base.processors import Machine, here
from brickd.base.state_file import framed
from brickd.cli import roofline_svg
from brickd.cli.roofline import _elsewhere as elsewhere
from brickd.errors import BrickdError
from brickd.query.queries import RooflineQuery

HERE = Machine("a processor", 2)
LEVELS = (Bandwidth("L1", 1e12, 24_576), Bandwidth("L2", 2e11, 2**19), Bandwidth("memory", 1e10, 2**30))
DEVICE = Device(
    "machine",
    "measured",
    "2026-01-01T00:00:00.000Z",
    "a library",
    HERE,
    {"float32": 1e11, "float64": 5e10},
    LEVELS,
    evidence={
        of: Evidence("2026-01-01T00:00:00.000Z", 0.0, 20, 20, rate)
        for of, rate in {
            "float32": 1e11,
            "float64": 5e10,
            **{each.level: each.bytes_per_second for each in LEVELS},
        }.items()
    },
)
PEAKS = ("calibrate", "--device", "machine", "--peak-flops", "1e11", "--bandwidth", "1e10")

# The brick `gemm` reaches 2e10 FLOP/s with 20 FLOP/byte, which is a fifth of the peak. The brick `copy` reaches 4e9
# FLOP/s with 0.5 FLOP/byte, which is four fifths of what the memory allows.
COMPUTING = f"""
brick.brick("gemm", "ffn").record(1_000_000, bytes=1_000_000, flops=20_000_000)
brick.brick("copy").record(1_000_000, bytes=8_000_000, flops=4_000_000)
brick.brick("cached").record(1_000_000, bytes=16_000_000, flops=8_000_000)
brick.brick("sample").record(1_000_000)
brick.brick("move").record(1_000_000, bytes=8)
brick.brick({HOSTILE!r}).record(1_000_000, flops=8)
pause()
"""

rates = st.floats(1, 1e30)


def brick(name: str = "b", **answer: Any) -> dict[str, Any]:
    """Return an entry of the view `bricks`."""
    known = {"category": "other", "count": 1, "total_ns": 1000, "self_ns": 1000, "flops": 0, "bytes": 0}
    return {"name": name, **known, "bounded": False, **answer}


def answered(
    *bricks: dict[str, Any], question: RooflineQuery | None = None, here: Machine = HERE, device: Device = DEVICE
) -> dict[str, Any]:
    reported = {
        "schema_version": 1,
        "source": "daemon",
        "over": "start",
        "over_ns": None,
        "workers": 1,
        "bricks": bricks,
    }
    return roofline_document(reported, device, question or RooflineQuery(), here)


# ---- the formula


@given(rates, rates, st.floats(1, 1e43), st.floats(1, 1e25), st.floats(1, 1e25))
def test_the_distance_is_to_the_lower_of_peak_and_bandwidth(
    peak: float, bandwidth: float, flops: float, size_bytes: float, time_ns: float
) -> None:
    found = place(Roof(peak, (Bandwidth("memory", bandwidth),), "memory"), flops, size_bytes, time_ns)
    achieved = flops / (time_ns * 1e-9)
    roof = min(peak, flops / size_bytes * bandwidth)
    assert found.distance == pytest.approx(1 - min(achieved / roof, 1), abs=1e-9)
    assert found.share == pytest.approx(achieved / roof)
    assert found.limit == ("compute" if found.roof_flops_per_second == peak else "memory")
    assert 0 <= found.distance <= 1
    assert (found.served_by is None) == found.above


@given(st.lists(rates, min_size=1, max_size=4), rates, st.floats(1e-6, 1e9), st.floats(1e-6, 1e9))
def test_a_brick_uses_the_farthest_memory_level_that_is_fast_enough(
    bandwidths: list[float], peak: float, flops: float, size_bytes: float
) -> None:
    names = [f"L{number}" for number in range(len(bandwidths))]
    roof = Roof(peak, tuple(map(Bandwidth, names, bandwidths)), names[-1])
    found = place(roof, flops, size_bytes, 1e9)
    enough = [
        name
        for name, rate in zip(names, bandwidths, strict=True)
        if found.flops_per_second <= min(peak, found.flops_per_byte * rate)
    ]
    assert found.served_by == (enough[-1] if enough else None)


# ---- the document


@pytest.mark.parametrize(
    ("answer", "missing"),
    [
        ({}, ["flops", "bytes"]),
        ({"flops": 8}, ["bytes"]),
        ({"bytes": 8}, ["flops"]),
        ({"flops": 8, "bytes": 8, "total_ns": 0}, ["total_ns"]),
        ({"flops": math.nan, "bytes": 8}, ["flops"]),
        ({"flops": 8, "bytes": math.inf}, ["bytes"]),
        ({"flops": -1, "bytes": 8}, ["flops"]),
        ({"flops": 5e-324, "bytes": 8}, ["flops"]),
    ],
)
def test_a_brick_with_unknown_figures_is_unknown_and_never_optimal(answer: dict[str, Any], missing: list[str]) -> None:
    found = answered(brick(**answer), brick("known", flops=100, bytes=100))
    assert [entry["name"] for entry in found["bricks"]] == ["known"]
    (unknown,) = found["unknown"]
    assert unknown["missing"] == missing
    assert not {"distance_percent", "of_roof_percent", "limit"} & set(unknown)


@given(st.lists(st.tuples(*[st.integers(0, 2**63)] * 3), max_size=8), st.none() | st.integers(1, 4))
def test_every_brick_is_ranked_counted_or_unknown(reported: list[tuple[int, int, int]], top: int | None) -> None:
    bricks = [brick(str(n), flops=f, bytes=b, total_ns=t) for n, (f, b, t) in enumerate(reported)]
    found = answered(*bricks, question=RooflineQuery(top=top))
    assert len(found["bricks"]) + found["rest"]["bricks"] + len(found["unknown"]) == len(bricks)
    gains = [entry["to_gain_ns"] for entry in found["bricks"]]
    assert gains == sorted(gains, reverse=True)
    assert {entry["name"] for entry in found["unknown"]} >= {entry["name"] for entry in bricks if not entry["flops"]}
    json.dumps(found, allow_nan=False)
    ElementTree.fromstring(roofline_svg.svg(found))


def test_a_brick_above_the_roof_is_reported_and_not_clipped() -> None:
    (found,) = answered(brick(flops=8_000, bytes=16_000))["bricks"]
    assert found["above_roof"] is True
    assert found["of_roof_percent"] == 160
    assert found["of_peak_percent"] == 8
    assert found["served_by"] == "L2"
    assert found["distance_percent"] == found["to_gain_ns"] == 0
    (wrong,) = answered(brick(flops=10**9, bytes=8))["bricks"]
    assert (wrong["above_roof"], wrong["served_by"], wrong["limit"]) == (True, None, "compute")


def test_bricks_above_peak_or_bandwidth_are_counted_even_if_cut_off() -> None:
    bricks = [
        brick("below", flops=10, bytes=10),
        brick("cached", flops=8_000, bytes=16_000),
        brick("bytes", flops=8_000, bytes=4),  # 8e9 FLOP/s with 2,000 FLOP/byte, which is below the peak
        brick("peak", flops=10**6, bytes=10),
        brick("most", flops=9 * 10**5, bytes=10),
    ]
    few = replace(DEVICE, source="given", bandwidths=(Bandwidth("memory", 1.0),), evidence={})
    for top in (None, 1):
        assert answered(*bricks, question=RooflineQuery(top=top))["above"] == {
            "peak": 2, "most_of_peak_percent": 1000, "every_roof": 0, "served_by": {"L2": 1},
        }  # fmt: skip
        assert answered(*bricks, question=RooflineQuery(top=top), device=few)["above"]["every_roof"] == 3
    assert answered(bricks[0])["above"] == {
        "peak": 0, "most_of_peak_percent": None, "every_roof": 0, "served_by": {},
    }  # fmt: skip


def bounded(*of: str) -> Device:
    """Return the device; these of its rates are lower bounds."""
    without = Evidence("2025-05-05T00:00:00.000Z", 1.4, 12, disturbed_by={"waited": 12})
    return replace(DEVICE, evidence={**DEVICE.evidence, **dict.fromkeys(of, without)})


@pytest.mark.parametrize(
    ("of", "peak_bounded", "roofs_bounded"),
    [
        ((), False, [False, False]),
        (("float32",), True, [True, False]),
        (("memory",), False, [False, True]),
        (("L1", "float64"), False, [False, False]),
    ],
)
def test_a_roof_that_is_a_lower_bound_is_marked_where_it_limits(
    of: tuple[str, ...], peak_bounded: bool, roofs_bounded: list[bool]
) -> None:
    found = answered(brick("compute", flops=2_000, bytes=1), brick("memory", flops=10, bytes=100), device=bounded(*of))
    by_name = {entry["name"]: entry["roof_bounded"] for entry in found["bricks"]}
    assert [by_name["compute"], by_name["memory"]] == roofs_bounded
    assert found["peak_bounded"] is peak_bounded
    top = answered(brick("compute", flops=2_000, bytes=1), device=bounded(*of), question=RooflineQuery(top=1))
    assert top["rest"]["roof_bounded"] is False
    cut = answered(
        brick("compute", flops=2_000, bytes=1),
        brick("c", flops=1_000, bytes=1),
        device=bounded(*of),
        question=RooflineQuery(top=1),
    )
    assert cut["rest"]["roof_bounded"] is roofs_bounded[0]
    texts = "".join(ElementTree.fromstring(roofline_svg.svg(found)).itertext())
    assert ("peak ≥ 100GFLOP/s, lower bound" in texts) is peak_bounded
    assert ("memory ≥ 10.0GB/s" in texts) is ("memory" in of)


def test_the_requested_level_and_type_determine_the_roof() -> None:
    asked = RooflineQuery(level="L2", type="float64")
    (found,) = answered(brick(flops=2_000, bytes=8_000), question=asked)["bricks"]
    assert (found["roof_flops_per_second"], found["limit"]) == (5e10, "compute")
    (found,) = answered(brick(flops=1_000, bytes=8_000), question=asked)["bricks"]
    assert (found["roof_flops_per_second"], found["limit"]) == (2.5e10, "L2")


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        (RooflineQuery(type="int8"), "--type is int8, expected one that device machine has: float32, float64"),
        (RooflineQuery(level="L3"), "--level is L3, expected one that device machine has: L1, L2, memory"),
    ],
)
def test_a_missing_peak_is_refused_with_the_available_ones(asked: RooflineQuery, text: str) -> None:
    with pytest.raises(BrickdError, match=text):
        roof_of(DEVICE, asked)
    with pytest.raises(BrickdError, match="no peaks of device gpu0, only of machine"):
        chosen([DEVICE], RooflineQuery(device="gpu0"))


@given(
    rates,
    st.lists(rates, min_size=1, max_size=3),
    st.lists(st.tuples(st.floats(1, 1e43), *[st.integers(1, 2**64)] * 2)),
)
def test_any_device_and_bricks_can_be_shown_and_drawn(
    peak: float, bandwidths: list[float], reported: list[tuple[float, int, int]]
) -> None:
    levels = tuple(Bandwidth(f"L{n}", rate) for n, rate in enumerate(bandwidths))
    device = replace(DEVICE, source="given", flops_per_second={"float32": peak}, bandwidths=levels, evidence={})
    bricks = [brick(str(n), flops=f, bytes=b, total_ns=t) for n, (f, b, t) in enumerate(reported)]
    found = answered(*bricks, question=RooflineQuery(level="L0"), device=device)
    assert len(found["bricks"]) == len(bricks)
    json.dumps(found, allow_nan=False)
    drawn = ElementTree.fromstring(roofline_svg.svg(found))
    assert len(list(drawn.iter(f"{SVG}circle"))) == len(bricks)


# ---- the picture


SVG = "{http://www.w3.org/2000/svg}"


@given(st.text(), st.text(), st.text())
def test_no_name_can_escape_from_the_picture(name: str, category: str, kind: str) -> None:
    found = answered(brick(name, category=category, flops=100, bytes=100)) | {"type": kind}
    drawn = ElementTree.fromstring(roofline_svg.svg(found))
    tags = {element.tag.removeprefix(SVG) for element in drawn.iter()}
    assert tags == {"svg", "title", "style", "rect", "path", "text", "circle", "g"}


def test_the_picture_has_each_placed_brick_and_counts_the_others() -> None:
    bricks = [brick(f"b{n}", flops=10**n, bytes=100) for n in range(1, 5)]
    drawn = ElementTree.fromstring(roofline_svg.svg(answered(*bricks, brick("unseen"))))
    assert len(list(drawn.iter(f"{SVG}circle"))) == 4
    texts = ["".join(element.itertext()) for element in drawn.iter()]
    assert drawn.findtext(f"{SVG}title") == "Roofline of machine, float32"
    assert "b3: 1.0GFLOP/s, 10 FLOP/byte, 1 % of the roof (compute), 1.0 µs" in [
        text.replace("1.0 %", "1 %") for text in texts
    ]
    assert not any("unseen" in text for text in texts)
    assert "Not shown: 1 brick unknown: without operations, bytes or time." in texts


def test_the_picture_contains_all_bricks_however_far_apart() -> None:
    bricks = [brick(flops=f, bytes=b) for f, b in itertools.product((1, 2**63), repeat=2)]
    drawn = ElementTree.fromstring(roofline_svg.svg(answered(*bricks)))
    _, _, width, height = map(float, drawn.attrib["viewBox"].split())
    for circle in drawn.iter(f"{SVG}circle"):
        assert 0 < float(circle.attrib["cx"]) < width
        assert 0 < float(circle.attrib["cy"]) < height


# ---- the verb


@pytest.fixture
def peaks(prefix: str) -> None:
    assert brickd(*PEAKS).returncode == 0


def names(answer: dict[str, Any]) -> list[str]:
    return [entry["name"] for entry in answer["bricks"]]


def test_without_peaks_the_message_names_calibrate(worker: Start) -> None:
    started(worker, COMPUTING)
    found = brickd("roofline")
    assert (found.returncode, found.stdout) == (2, "")
    assert found.stderr == "brickd: no peaks are saved: measure those of this machine (brickd calibrate)\n"


@pytest.mark.ci
@pytest.mark.usefixtures("peaks")
def test_bricks_are_sorted_by_possible_gain_and_unknown_ones_counted(worker: Start) -> None:
    started(worker, COMPUTING)
    answer = document("roofline")
    assert names(answer) == ["gemm", "copy", "cached"]
    assert [entry["distance_percent"] for entry in answer["bricks"]] == [80, 20, 0]
    assert [entry["limit"] for entry in answer["bricks"]] == ["compute", "memory", "memory"]
    assert [entry["to_gain_ns"] for entry in answer["bricks"]] == pytest.approx([800_000, 200_000, 0], rel=1e-6)
    assert {entry["name"]: entry["missing"] for entry in answer["unknown"]} == {
        "sample": ["flops", "bytes"], "move": ["flops"], HOSTILE: ["bytes"],
    }  # fmt: skip
    assert [row["name"] for row in sheet("roofline")] == names(answer)
    screen = brickd("roofline", COLUMNS="200").stdout.splitlines()
    assert screen[0].startswith("machine: float32 100GFLOP/s, memory 10.0GB/s; given ")
    assert screen[2].split() == [
        "gemm",
        "1.00",
        "ms",
        "20.0G",
        "20",
        "100G",
        "compute",
        "20",
        "%",
        "20",
        "%",
        "80",
        "%",
        "800",
        "µs",
    ]
    assert "above" in screen[4]
    assert screen[5:] == [
        "3 bricks are not rated: 1 without bytes; 1 without operations; 1 without operations and bytes",
    ]


@pytest.mark.ci
@pytest.mark.usefixtures("peaks")
def test_tiles_are_shown_by_level_with_their_fraction_of_the_peak(worker: Start) -> None:
    started(
        worker,
        """
p = brick.BrickProfiler.enabled(); p.enable_tile_profiling()
gemm = p.start("gemm")
for level, elements, flops in (("Macro", 4096, 2**20), ("Midi", 512, 2**14), ("Micro", 16, 64)):
    tile = p.start_tile(level); sum(range(3000)); p.stop_tile(tile, elements, flops)
p.stop(gemm)
pause()
""",
    )
    roofline_document = {entry["name"]: entry for entry in document("roofline", "--category", "tile")["bricks"]}
    assert {name: (entry["bytes"], entry["flops_per_byte"]) for name, entry in roofline_document.items()} == {
        "tile.macro": (16384, 64), "tile.midi": (2048, 8), "tile.micro": (64, 1),
    }  # fmt: skip
    for entry in roofline_document.values():
        assert entry["of_peak_percent"] == pytest.approx(
            100 * entry["flops"] / entry["total_ns"] * 1e9 / 1e11, rel=1e-4
        )
    (head,) = (line for line in brickd("roofline", COLUMNS="200").stdout.splitlines() if line.startswith("BRICK"))
    assert "OF PEAK" in head


@pytest.mark.ci
@pytest.mark.usefixtures("peaks")
def test_hostile_names_are_escaped(worker: Start, tmp_path: Path) -> None:
    started(worker, f"brick.brick({HOSTILE!r}).record(1_000, bytes=8, flops=8); pause()")
    found = brickd("roofline", "--by", "worker", "--svg", str(tmp_path / "a.svg"))
    assert found.returncode == 0
    assert all(line.isprintable() for line in found.stdout.splitlines())
    assert names(document("roofline")) == [HOSTILE]
    ElementTree.parse(tmp_path / "a.svg")


@pytest.mark.ci
@pytest.mark.usefixtures("peaks")
def test_a_picture_that_cannot_be_written_is_reported_with_its_path(worker: Start, tmp_path: Path) -> None:
    started(worker, COMPUTING)
    found = brickd("roofline", "--svg", str(tmp_path / "none" / "a.svg"))
    assert (found.returncode, found.stdout) == (2, "")
    assert "a.svg: cannot be written: No such file or directory (use another --svg FILE)" in found.stderr


@pytest.mark.ci
@pytest.mark.usefixtures("peaks")
def test_a_picture_is_written_through_a_link_and_into_a_fifo(worker: Start, tmp_path: Path) -> None:
    started(worker, COMPUTING)
    fifo, link, drawn = tmp_path / "fifo", tmp_path / "link", tmp_path / "a.svg"
    os.mkfifo(fifo)
    link.symlink_to(drawn)
    with open(os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)) as reader:
        assert brickd("roofline", "--svg", str(fifo)).returncode == 0
        assert stat.S_ISFIFO(fifo.stat().st_mode)
        assert ElementTree.fromstring(reader.read()).tag == f"{SVG}svg"
    assert brickd("roofline", "--svg", str(link)).returncode == 0
    assert link.is_symlink()
    ElementTree.parse(drawn)


@pytest.mark.ci
@pytest.mark.usefixtures("peaks")
def test_without_workers_or_spans_there_is_nothing_to_rank(worker: Start) -> None:
    assert brickd("roofline").stdout.startswith("no workers: ")
    started(worker, "brick.init(); pause()")
    assert brickd("roofline").stdout == "no spans yet\n"


@pytest.mark.ci
@pytest.mark.usefixtures("daemon", "peaks")
def test_a_daemon_gives_the_same_answer(worker: Start) -> None:
    started(worker, COMPUTING)
    answer = document("roofline", "--by", "service", "--top", "1")
    assert answer["source"] == "daemon"
    assert (names(answer), answer["rest"]["bricks"], answer["rest"]["above_roof"]) == (["gemm"], 2, 1)


@pytest.mark.ci
@pytest.mark.usefixtures("peaks")
def test_a_window_has_only_the_work_since_the_daemons_first_look(worker: Start) -> None:
    process = started(worker, COMPUTING + COMPUTING.replace("record(1_000_000", "record(2_000_000"))
    with running() as daemon:
        daemon.until("worker_found")
        process.go()
        process.paused()
        for over in ("10s", "60s"):
            answer = document("roofline", "--over", over)
            assert answer["over"] == over
            assert [(entry["name"], entry["count"], entry["distance_percent"]) for entry in answer["bricks"]] == [
                ("gemm", 1, 90), ("copy", 1, 60), ("cached", 1, 20),
            ]  # fmt: skip
            assert {entry["name"] for entry in answer["unknown"]} == {"sample", "move", HOSTILE}
            assert ", last " in brickd("roofline", "--over", over).stdout.splitlines()[1]


@pytest.mark.ci
@pytest.mark.usefixtures("peaks")
def test_a_kernel_timed_by_a_device_uses_the_amounts_of_its_launch(worker: Start) -> None:
    started(
        worker,
        """
gemm = brick.brick("gemm")
for n in range(3):
    brick.kernel("gemm", 16, 256, flops=9_000_000, bytes=9_000_000)
    id = gemm.defer(stream=1)
    brick.finalize(stream=1, durations={id: 1_000_000})
pause()
""",
    )
    with running() as daemon:
        daemon.once("/status", lambda answer: answer["ledger"]["deferred"]["measured"] == 3)
        answer = document("roofline")
        (gemm,) = answer["bricks"]
        assert (gemm["name"], gemm["flops"], gemm["bytes"], gemm["total_ns"]) == (
            "gemm",
            27_000_000,
            27_000_000,
            3_000_000,
        )
        assert gemm["flops_per_second"] == 9e9


@pytest.mark.ci
@pytest.mark.usefixtures("peaks")
def test_a_window_without_a_daemon_is_refused(worker: Start) -> None:
    started(worker, COMPUTING)
    found = brickd("roofline", "--over", "10s")
    assert (found.returncode, found.stdout) == (3, "")
    assert found.stderr.startswith("brickd: the totals of the last 10s need a daemon")


@pytest.mark.ci
@pytest.mark.usefixtures("peaks")
def test_a_recording_is_ranked_like_the_machine(worker: Start, tmp_path: Path) -> None:
    path = str(tmp_path / "a.brick")
    process = started(worker, COMPUTING)
    with recording("-o", path, "--until-exit") as recorder:
        process.go()
        assert process.end() == 0
        recorder.communicate()
    answer = document("roofline", path)
    assert names(answer) == ["gemm", "copy", "cached"]
    assert answer["recording"]["files"][0]["path"] == path


def test_a_recording_of_another_host_is_marked_as_such() -> None:
    found = answered() | {"recording": {"host": "elsewhere\x1b[2J"}}
    (reported,) = elsewhere(found)
    assert reported.startswith("this was recorded on elsewhere")
    assert elsewhere(found | {"recording": {"host": os.uname().nodename}}) == []
    assert elsewhere(found | {"recording": {"host": None}}) == []


def low(name: str) -> Device:
    """Return a device of this machine with a low peak."""
    evidence = {of: each for of, each in DEVICE.evidence.items() if of != "float64"}
    evidence["float32"] = replace(evidence["float32"], undisturbed_per_second=5e9)
    return replace(DEVICE, name=name, machine=here(), flops_per_second={"float32": 5e9}, evidence=evidence)


@pytest.mark.parametrize("arguments", [(), ("--json",), ("-o", "csv"), ("--top", "1")])
def test_a_brick_above_the_peak_is_never_shown_without_a_note(
    worker: Start, prefix: str, arguments: tuple[str, ...]
) -> None:
    started(worker, COMPUTING)
    save(runtime().state / "peaks", [low("machine")])
    found = brickd("roofline", *arguments)
    assert found.returncode == 0
    assert found.stderr == (
        "brickd: 2 bricks reached up to 400 % of the peak of machine, float32 5.0GFLOP/s: the peak is too low, or the"
        " spans give too many operations; measure it again: brickd calibrate\n"
    )


@pytest.mark.ci
def test_too_low_a_peak_is_reported_with_the_next_command(worker: Start) -> None:
    started(worker, COMPUTING)
    save(runtime().state / "peaks", [low("core")])
    assert "or more than one core computed (--device machine)" in brickd("roofline", "--device", "core").stderr
    brickd("calibrate", "--device", "a b", "--peak-flops", "1e11", "--bandwidth", "1e9")
    assert brickd("roofline", "--device", "a b").stderr == (
        "brickd: 2 bricks are above the bandwidth of every known level of a b: the bandwidth is too low, or the spans"
        " give too few bytes; give it again: brickd calibrate --device 'a b' --peak-flops N --bandwidth N\n"
    )


def test_lower_bounds_and_peaks_under_load_are_marked(worker: Start) -> None:
    started(worker, COMPUTING)
    save(runtime().state / "peaks", [replace(bounded("float32", "L1"), machine=here())])
    lines = brickd("roofline", COLUMNS="200").stdout.splitlines()
    assert lines[0] == (
        "machine: float32 ≥ 100GFLOP/s, memory 10.0GB/s; measured 2025-05-05, under load: other work took 1.4"
        " processors"
    )
    assert "≥ 100G  compute   ≤ 20 %   ≤ 20 %    ≥ 80 %  ≥ 800 µs" in lines[2]
    assert "5.00G  memory      80 %  ≤ 4.0 %      20 %    200 µs" in lines[3]
    assert lines[5:7] == [
        "machine, float32: a lower bound: none of 12 rounds was undisturbed: 12 waited for a processor",
        "to measure lower bounds again, with less other work: brickd calibrate",
    ]
    save(runtime().state / "peaks", [replace(bounded("memory"), machine=here())])
    lines = brickd("roofline", "--top", "1", COLUMNS="200").stdout.splitlines()
    assert lines[0].startswith("machine: float32 100GFLOP/s, memory ≥ 10.0GB/s; measured ")
    assert "…2 more: ≥ 200 µs to gain" in lines
    lines = brickd("roofline", "--type", "float64", "--level", "L1", COLUMNS="200").stdout.splitlines()
    assert lines[0] == "machine: float64 50.0GFLOP/s, L1 1.0TB/s; measured 2026-01-01"
    assert not any("lower bound" in line for line in lines)


def test_peaks_of_a_file_without_evidence_are_lower_bounds(worker: Start) -> None:
    started(worker, COMPUTING)
    device = replace(DEVICE, machine=here()).document()
    del device["evidence"]
    path = runtime().state / "peaks"
    path.parent.mkdir(parents=True)
    path.write_bytes(framed("peaks", 1, [json.dumps({"devices": [device]}).encode()]))
    lines = brickd("roofline", COLUMNS="200").stdout.splitlines()
    assert lines[0].endswith("; measured 2026-01-01, load unknown")
    assert (
        "machine, memory: a lower bound: an earlier version of brickd, which did not check for other work, measured it"
        in lines
    )


def test_peaks_of_another_machine_are_marked_as_such(worker: Start) -> None:
    started(worker, COMPUTING)
    save(runtime().state / "peaks", [DEVICE])
    found = brickd("roofline")
    assert found.returncode == 0
    assert (
        found.stderr
        == "brickd: the peaks are those of another machine, a processor, 2 cores: brickd calibrate --replace\n"
    )
    assert document("roofline")["device_is_here"] is False
