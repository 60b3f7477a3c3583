"""Tiles of BrickProfiler: their levels, their formulas, and the bricks around them."""

from __future__ import annotations

import json

import pytest
from brick_agent import TileLevel
from brick_agent._compat.profiler.tiles import TileStats
from faults import Start
from test_profiler import report_of


def test_the_tile_levels_match_the_seed() -> None:
    assert [(level.name, int(level)) for level in TileLevel] == [("Macro", 0), ("Midi", 1), ("Micro", 2)]


def test_the_formulas_match_the_seed() -> None:
    of = TileStats(TileLevel.Midi, count=2, total_ns=4_000, total_elements=512, total_flops=8e6)
    assert of.avg_us == 2
    assert of.gflops == 2_000
    assert of.arithmetic_intensity == 8e6 / 2048
    assert of.fraction_of_peak(4_000) == 0.5
    assert of.fraction_of_peak(1_000) == 1
    assert of.fraction_of_peak(0) == of.fraction_of_peak(-1) == 0
    nothing = TileStats(TileLevel.Macro)
    assert (nothing.avg_us, nothing.gflops, nothing.arithmetic_intensity, nothing.fraction_of_peak(9)) == (0, 0, 0, 0)


def test_tiles_are_counted_by_level(worker: Start, prefix: str) -> None:
    off, tiles, names = report_of(
        worker,
        """
p.stop_tile(p.start_tile("Macro"), 1, 1)
off = p.tile_stats("Macro").count
p.enable_tile_profiling()
assert p.is_tile_profiling_enabled()
for row in range(2):
    macro = p.start_tile("Macro", row, 0)
    for col in range(3):
        micro = p.start_tile("Micro", row, col)
        p.stop_tile(micro, elements=16, flops=32)
    p.stop_tile(macro, 48, 96.5)
p.disable_tile_profiling()
p.stop_tile(p.start_tile("Midi"), 1, 1)
report([off, [[t.level.name, t.count, t.total_elements, t.total_flops, 0 < t.min_ns <= t.max_ns <= t.total_ns]
        for t in p.all_tile_stats()], p.brick_names()])
""",
    )
    assert off == 0
    assert tiles == [["Macro", 2, 96, 193.0, True], ["Midi", 0, 0, 0.0, False], ["Micro", 6, 96, 192.0, True]]
    assert names == [], "a tile is not a brick"


def test_a_tiles_time_is_the_self_time_of_its_brick(worker: Start, prefix: str) -> None:
    gemm, gemm_self, inner, total, share = report_of(
        worker,
        """
p.enable_tile_profiling()
gemm = p.start("gemm", "ffn")
macro = p.start_tile("Macro"); micro = p.start_tile("Micro"); sum(range(5000))
p.stop(p.start("inner"))
p.stop_tile(micro); p.stop_tile(macro)
p.stop(gemm)
report([p.stats("gemm").total_ns, p.stats("gemm").self_ns, p.stats("inner").total_ns, p.total_ns(),
        p.category_stats()["FFN"].total_ns])
""",
    )
    assert gemm_self + inner == pytest.approx(gemm, rel=0.01)
    assert total == pytest.approx(gemm, rel=0.01), "each figure is a separate reading"
    assert share == pytest.approx(gemm_self, rel=0.01)


def test_a_reset_of_tiles_keeps_the_bricks(worker: Start, prefix: str) -> None:
    found = report_of(
        worker,
        """
p.enable_tile_profiling()
b = p.start("b"); p.stop_tile(p.start_tile("Midi"), 5, 5); p.stop(b)
before = p.total_ns()
p.reset_tile_stats()
report([p.tile_stats("Midi").count, p.stats("b").count, abs(p.total_ns() - before) < before / 100])
""",
    )
    assert found == [0, 1, True]


def test_tiles_are_reported(worker: Start, prefix: str) -> None:
    text, summary = report_of(
        worker,
        """
p.enable_tile_profiling()
p.stop_tile(p.start_tile("Macro"), 1024, 8192)
p.stop_tile(p.start_tile("Micro"), 0, 8)
report([p.to_json(), p.summary()])
""",
    )
    macro, midi, micro = json.loads(text)["tiles"]
    assert (macro["level"], macro["count"], macro["elements"], macro["flops"]) == ("macro", 1, 1024, 8192)
    assert macro["flops_per_byte"] == 2
    assert macro["flops_per_s"] == pytest.approx(8192e9 / macro["total_ns"])
    assert midi["count"] == 0
    assert micro["flops_per_byte"] == 0
    table = summary.split("\n\n")[-1].splitlines()
    assert [line.split()[0] for line in table] == ["TILE", "macro", "micro"]
    assert " 2.00 " in table[1]
    assert "unknown" in table[2], "an intensity of 0 means that it is unknown"


def test_a_tiles_bytes_follow_from_its_elements_if_they_fit(worker: Start, prefix: str) -> None:
    sizes, lost = report_of(
        worker,
        """
import json
from brick_agent import _core
p.enable_tile_profiling()
for elements in (10, 2**46, 2**48, -1, "x"): p.stop_tile(p.start_tile("Midi"), elements, 1)
rows = {row[2]: row for row in _core._totals(False)[2]}
report([rows["tile.midi"][12:14], json.loads(p.to_json())["not_recorded"]["amounts"]])
""",
    )
    assert sizes == [10 + 2**46 + 2**48, 40 + 2**48]
    assert lost == 3, "four times 2^48 exceeds the largest amount, and the last two values are not amounts"
