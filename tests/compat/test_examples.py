"""The examples with the names of the old profilers run, and print what docs/porting.md shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT
from pages import blocks
from test_execution_graph import CRITICAL, TWO

EXAMPLES = sorted(path.name for path in (ROOT / "agent" / "examples").glob("*.py"))
PAGE = (ROOT / "docs" / "porting.md").read_text()
SHOWN = dict(re.findall(r"```text\n\$ python3 agent/examples/(\w+\.py)\n(.*?)```", PAGE, re.DOTALL))
BOOK = PAGE.partition("The book prints:\n\n```text\n")[2].partition("```")[0]


def printed(*program: str | Path, folder: Path | None = None) -> str:
    """Run a program in strict mode; assert that it prints no messages, and return its output."""
    environment = os.environ | {"BRICKD_STRICT": "1"}
    command = [sys.executable, "-P", *program]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=folder)
    assert (ended.returncode, ended.stderr) == (0, "")
    return ended.stdout


def test_docs_porting_shows_each_example() -> None:
    assert sorted(SHOWN) == EXAMPLES == ["graph.py", "profiler.py", "tiles.py", "traces.py"]


@pytest.mark.ci
@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_prints_what_docs_porting_shows_without_a_mistake(prefix: str, name: str) -> None:
    assert printed(ROOT / "agent" / "examples" / name).splitlines() == SHOWN[name].splitlines()


def test_the_figures_of_the_example_match_the_book() -> None:
    ours = {line.split()[0]: line.split() for line in SHOWN["profiler.py"].splitlines() if line}
    bricks, categories = BOOK.split("\n\n")
    for line in bricks.splitlines()[1:]:
        name, average, total, count = line.split()
        assert ours[name][2] == count
        assert [float(ours[name][3]), float(ours[name][5])] == [round(float(total)), round(float(average))]
    for line in categories.splitlines()[1:]:
        name, average, percent, count = line.split()
        assert [ours[name][1], ours[name][-2] + "%"] == [count, percent]
        assert float(ours[name][4]) == round(float(average))


def test_the_tiles_of_the_example_match_the_old_table_and_its_gflops_follow_from_it() -> None:
    _, *old = PAGE.partition("\nLevel       Samples")[2].partition("```")[0].splitlines()
    ours = SHOWN["tiles.py"].partition("ELEMENTS/TILE\n")[2].splitlines()
    assert len(old) == len(ours) == 3
    for before, now in zip(old, ours, strict=True):
        level, tiles, average_us, _, intensity, elements = before.split()
        flops = 4 * float(intensity) * int(elements)
        gflops = f"{flops / float(average_us) / 1e3:.2f}"
        assert now.replace(",", "").split() == [
            level.lower(), tiles, f"{float(average_us):.2f}", gflops, intensity, elements
        ]  # fmt: skip


def test_the_traces_of_the_example_have_the_old_kernel_and_checksums() -> None:
    (old,) = re.findall(
        r"^DIVERGENCE at kernel '(\w+)' \((.*)\): CPU checksum 0x(\w+) != GPU checksum 0x(\w+)\.", PAGE, re.M
    )
    kernel, place, expected, actual = old
    assert f"FNV-1a {expected.lower()}, {actual.lower()}\n" in SHOWN["traces.py"]
    assert f", first at {kernel}, {place}: expected" in SHOWN["traces.py"]


def test_the_tree_and_critical_path_of_the_example_match_the_book() -> None:
    _, _, shown = SHOWN["graph.py"].partition("\n")
    assert shown == f"{TWO}\n{CRITICAL}"


@pytest.mark.ci
def test_the_program_in_docs_porting_writes_the_tree_shown_there(prefix: str, tmp_path: Path) -> None:
    imports = next(block.text for block in blocks(PAGE) if block.language == "python")
    graph = blocks(PAGE.partition("\n## The graph: ")[2])
    program, tree = (next(block.text for block in graph if block.language == kind) for kind in ("python", "text"))
    printed("-c", imports + program, folder=tmp_path)
    assert (tmp_path / "execution_tree.txt").read_text() == tree
