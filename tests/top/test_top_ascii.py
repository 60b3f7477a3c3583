"""`brickd top` on a terminal that shows only ASCII."""

from __future__ import annotations

import ast
import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path

import pytest
from faults import Start
from running import BRICKD
from serving import Daemon
from top_screens import Top
from verbs import LOSING, started

import brickd
from brickd.top import characters, lines
from brickd.top.draw import draw
from brickd.top.header import Cells
from brickd.top.panel_rows import Look
from brickd.top.panels import PANELS
from brickd.top.sparkline import BARS

PLAIN, ASCII = Look(colour=False), Look(colour=False, ascii_only=True)
LONG = """
for number in range(30):
    with brick.span(f"{number}" + "x" * 200):
        with brick.span("gemm"): pass
pause()
"""
# the rooms whose texts come to the screen
ROOMS = ("top", "screens", "views", "model", "analysis", "base/units.py", "base/escape.py")


_ESCAPE = re.compile(r"\\[xuUN0-7]")


def texts(path: Path) -> Iterator[str]:
    """Yield the strings of a module that are not docstrings and that may have a character outside of ASCII."""
    source = path.read_text()
    # Only the lines that may have one are searched, because all syntax trees take more than a second.
    marked = [*accumulate((not each.isascii() or bool(_ESCAPE.search(each)) for each in source.split("\n")), initial=0)]
    if marked[-1]:
        yield from _texts_below(ast.parse(source), marked)


def _texts_below(node: ast.AST, marked: Sequence[int]) -> Iterator[str]:
    """Yield the strings of a syntax tree on marked lines; `marked` has the number of marked lines before each line."""
    if isinstance(node, ast.expr | ast.stmt) and marked[node.lineno - 1] == marked[node.end_lineno or -1]:
        return
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):  # no docstring
        for each in ast.iter_child_nodes(node):
            yield from _texts_below(each, marked)


def test_each_character_of_the_texts_has_one_in_ascii() -> None:
    root = Path(brickd.__file__).parent
    files = [file for room in ROOMS for file in ((root / room).rglob("*.py") if "." not in room else [root / room])]
    assert len(files) > 50
    found = {text for file in files for text in texts(file) if not text.isascii() and text != BARS}
    left = {
        text
        for text in found
        if not lines.text(characters.in_ascii(lines.line(characters.key_name(f"{text} ", ascii_only=True)))).isascii()
    }
    # names begin with fullwidth signs in no text, and characters.py has the characters themselves
    assert left <= {"＝", "＋", "－", "＠", "=+-@\t\r＝＋－＠", "←", "→", *characters._KEYS, *characters._BOUNDS}


def test_every_panel_can_be_drawn_in_ascii_and_takes_the_same_cells(worker: Start, daemon: Daemon) -> None:
    started(worker, LOSING, BRICKD_SERVICE="api")
    started(worker, LONG, BRICKD_SERVICE="y" * 60)
    top, cut = Top(), 0
    states = [top.state._replace(panel=panel) for panel in PANELS] + [top.state._replace(help=True)]
    for state in states:
        frame = top.asker.frame(state, ())
        for size in (Cells(80, 24), Cells(200, 50), Cells(20, 10), Cells(80, None)):
            drawn = [lines.text(each) for each in draw(state, frame, size, ASCII, late=6.0).lines]
            assert "".join(drawn).isascii(), (state.panel, size)
            other = [lines.text(each) for each in draw(state, frame, size, PLAIN, late=6.0).lines]
            if not state.help:  # the names of keys are longer
                assert list(map(len, drawn)) == list(map(len, other))
            cut += "".join(other).count("…") * ("+" in "".join(drawn))
    assert cut


@pytest.mark.parametrize(
    ("variables", "is_ascii"),
    [
        ({"LANG": "C"}, True),
        ({"LANG": "C.UTF-8"}, False),
        # the examples of `locale_name` have the same rules
        pytest.param({}, True, marks=pytest.mark.ci),
        pytest.param({"LANG": "C.UTF-8", "LC_ALL": "C"}, True, marks=pytest.mark.ci),
        pytest.param({"LC_CTYPE": "C.UTF-8"}, False, marks=pytest.mark.ci),
    ],
    ids=str,
)
def test_a_batch_has_the_characters_of_the_locale(worker: Start, variables: dict[str, str], is_ascii: bool) -> None:
    started(worker, LONG, BRICKD_SERVICE="api")
    environment = {key: value for key, value in os.environ.items() if key not in ("LANG", "LC_ALL", "LC_CTYPE")}
    command = [*BRICKD, "top", "-b", "-n", "1"]
    shown = subprocess.run(
        command, env=environment | {"COLUMNS": "80"} | variables, capture_output=True, check=True
    ).stdout
    assert shown.isascii() == is_ascii
