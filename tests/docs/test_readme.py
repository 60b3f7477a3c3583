"""The commands in the README and in the tutorial print what these pages show."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import brick_agent as brick
import pytest
from conftest import ROOT
from pages import Command, Reader, blocks, commands

from brickd.query.verbs import VERBS

README = (ROOT / "README.md").read_text()
TUTORIAL = (ROOT / "docs" / "getting-started.md").read_text()
PARTS = [
    "Install", "Quick start", "What the demo finds", "Which command answers which question",
    "Compared with other tools", "Requirements", "Five limits", "Documentation", "Development",
]  # fmt: skip
LINES_MAX = 200
PAGES = [
    ROOT / "README.md",
    *(ROOT / "docs" / name for name in ("getting-started.md", "porting.md", "security.md")),
    *sorted((ROOT / "docs" / "explanation").glob("*.md")),
]

_JOB = re.compile(r"%(\d)")


def section(text: str, title: str) -> str:
    """Return the text below a heading, up to the next heading of the same level."""
    _, _, rest = text.partition(f"\n## {title}\n")
    return rest.partition("\n## ")[0]


class Typist(Reader):
    """Types commands like a reader who uses the jobs of a shell: `%1` is the first command in the background."""

    def type(self, command: Command) -> None:
        def process(job: re.Match[str]) -> str:
            return str(self.background[int(job[1]) - 1].pid)

        here = self.environment["BRICKD_RUNTIME_DIR"]
        output = tuple(line.replace("/run/user/1000/brickd", here) for line in command.output)
        super().type(command._replace(line=_JOB.sub(process, command.line), output=output))


@pytest.fixture
def reader(prefix: str, tmp_path: Path) -> Iterator[Typist]:
    one = Typist(tmp_path, {})
    try:
        yield one
    finally:
        one.leave()


def test_the_readme_has_its_sections_in_order_and_at_most_200_lines() -> None:
    assert re.findall(r"^## (.*)$", README, re.MULTILINE) == PARTS
    assert len(README.splitlines()) <= LINES_MAX


@pytest.mark.ci
def test_the_quick_start_of_the_readme_prints_the_shown_output(reader: Typist) -> None:
    text = section(README, "Quick start")
    (program,) = [block for block in blocks(text) if block.title]
    assert len(program.text.splitlines()) == 6
    assert "brickd status" in [command.line for command in commands(text)]
    reader.follow(text)


@pytest.mark.ci
def test_the_example_of_a_killed_worker_prints_the_shown_output(reader: Typist) -> None:
    _, _, text = (ROOT / "docs" / "explanation" / "how-it-works.md").read_text().partition("\nTry it with a worker")
    assert "kill -9 %1" in text
    reader.follow(text)


@pytest.mark.slow
def test_the_tutorial_prints_the_shown_output(reader: Typist) -> None:
    before, after = TUTORIAL.partition("\n## 1. Install\n")[0::2]
    reader.follow(before + after.partition("\n## 2. ")[2])


@pytest.mark.slow
@pytest.mark.timeout(1200)  # it compiles and installs all; next to thirty busy processes, this took more than 600 s
@pytest.mark.interpreter
def test_the_readme_works_in_a_bare_environment(prefix: str, tmp_path: Path) -> None:
    clone = tmp_path / "brickd"
    clone.mkdir()
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.run(listed, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines():
        if os.path.lexists(ROOT / name):  # git lists a deleted file until the deletion is committed
            (clone / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, clone / name, follow_symlinks=False)
    bare = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "PYTHONPATH")}
    bare["PATH"] = f"{Path(sys.base_prefix) / 'bin'}:/usr/bin:/bin"
    install = [command.line for command in commands(section(README, "Install"))]
    assert install == [command.line for command in commands(section(TUTORIAL, "1. Install"))][: len(install)]
    subprocess.run(["bash", "-ec", "\n".join(install)], cwd=clone, env=bare, check=True, stdout=subprocess.DEVNULL)
    one = Typist(clone, {})
    one.environment = bare | {"PATH": f"{clone / '.venv' / 'bin'}:{bare['PATH']}"}
    try:
        one.follow(section(README, "Quick start"))
        one.type(Command("brickd version", 0, ("brickd 0.1.0",)))
    finally:
        one.leave()


@pytest.mark.slow
def test_the_demo_finds_the_difference_shown_in_the_readme() -> None:
    text = section(README, "What the demo finds")
    wide = os.environ | {"COLUMNS": "160"}
    shown = subprocess.run(["scripts/demo"], cwd=ROOT, env=wide, check=True, stdout=subprocess.PIPE, text=True).stdout
    assert re.findall(r"^\$ brickd (\w+)", shown, re.MULTILINE) == ["weights", "diff", "stragglers", "status"]
    assert "demo/1 differs in layers.2.mlp.down.weight, 1 of 27 tensors" in text
    assert "demo/1 differs in layers.2.mlp.down.weight, 1 of 27 tensors" in shown
    # The demo shows `diff` after 5 s. On a busy machine, it may have compared less by then, and may not name the slow
    # worker in time. `scripts/bench stragglers` measures how often the demo names it.
    assert "demo/1 differs from 3 that agree, first at mlp.down, layer 2" in text
    differs = r"^! [0-9a-f]{8} demo/1 differs from the others since .*: mlp\.down layer 2"
    assert re.search(differs, shown, re.MULTILINE), shown


def test_the_scripts_named_in_the_readme_exist() -> None:
    named = set(re.findall(r"\bscripts/\w+", "".join(page.read_text() for page in PAGES)))
    assert {"scripts/demo", "scripts/test"} <= set(re.findall(r"\bscripts/\w+", README))
    assert [name for name in sorted(named) if not os.access(ROOT / name, os.X_OK)] == []


@pytest.mark.ci
def test_the_picture_of_a_screen_has_every_line_and_is_well_formed() -> None:
    screen = "$ brickd status\n! a <b> & c  brickd diff\nWORKER  PID\n  shop/0   1\n"
    drawn = subprocess.run([ROOT / "scripts" / "screen"], input=screen, stdout=subprocess.PIPE, text=True, check=True)
    for svg in (drawn.stdout, (ROOT / "docs" / "screen.svg").read_text()):
        assert texts(svg)[0] == "$ brickd status"
    assert texts(drawn.stdout) == screen.splitlines()


def texts(svg: str) -> list[str]:
    """Return the lines of a picture."""
    return ["".join(each.itertext()) for each in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]


@pytest.mark.parametrize(("file", "columns", "rows"), [("top.svg", 80, 24), ("top-wide.svg", 200, 50)])
def test_the_pictures_of_brickd_top_show_problems_bricks_and_keys(file: str, columns: int, rows: int) -> None:
    svg = (ROOT / "docs" / file).read_text()
    lines = texts(svg)
    assert len(svg) < 100_000
    assert len(lines) == rows
    assert max(map(len, lines)) <= columns
    assert re.match(r"brickd top  3 PROBLEMS  ", lines[0])
    assert lines[-1].startswith("? help  q quit")
    shown = "\n".join(lines)
    assert all(f"demo/{number} " in shown for number in range(4))
    assert re.search(r"! [0-9a-f]{8} demo/3 slow since", shown)
    assert re.search(r"^mlp\.gate ", shown, re.MULTILINE)
    assert 'fill="#ff7b72"' in svg


def test_the_section_on_questions_names_every_command() -> None:
    text = section(README, "Which command answers which question")
    table, _, below = text.partition("\nEvery command that reads")
    named = set(re.findall(r"brickd ([a-z]+)", table)) | set(re.findall(r"`([a-z]+)`", below))
    assert [verb for verb in VERBS if verb not in named] == []


@pytest.mark.parametrize("of", [brick.BrickProfiler, brick.KernelTrace, brick.TraceRun, brick.TraceReport])
def test_docs_porting_has_each_public_name_of_the_port(of: type) -> None:
    page = (ROOT / "docs" / "porting.md").read_text()
    assert [name for name in dir(of) if not name.startswith("_") and not re.search(rf"\b{name}\b", page)] == []


def test_names_that_docs_porting_calls_the_same_exist() -> None:
    page = (ROOT / "docs" / "porting.md").read_text()
    rows = re.findall(r"^\| (.*?) \| the same\b", page, re.MULTILINE)
    old = {name for row in rows for name in re.findall(r"`([a-z]\w+)", row)}
    assert len(old) > 40
    ours = (brick.BrickProfiler, brick.KernelTrace, brick.TraceRun, brick.TraceReport)
    # a name such as `report.matched` is an attribute
    assert {name for name in old if not any(hasattr(of, name) for of in ours)} <= {"report"}


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.name != "security.md"], ids=lambda page: str(page.name)
)
def test_the_python_on_a_page_compiles(page: Path) -> None:
    for block in blocks(page.read_text()):
        if block.language == "python":
            compile(block.text, str(page), "exec")
