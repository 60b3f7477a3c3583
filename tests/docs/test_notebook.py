"""Each cell of the notebook in `docs` runs with real workers, and the file contains no outputs."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT
from documentation import links

NOTEBOOK = ROOT / "docs" / "how-to" / "explore-in-a-notebook.ipynb"
CONTENT: dict[str, Any] = json.loads(NOTEBOOK.read_text())
CODE = ["".join(cell["source"]) for cell in CONTENT["cells"] if cell["cell_type"] == "code"]

# Runs cells as a notebook does: all cells share one namespace, and the value of a cell's last expression is shown.
KERNEL = """
import ast, json, sys
names, shown = {"__name__": "__main__"}, []
for cell in json.load(sys.stdin):
    *before, last = ast.parse(cell).body
    value = None
    if isinstance(last, ast.Expr):
        exec(compile(ast.Module(before, []), "cell", "exec"), names)
        value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
    else:
        exec(compile(cell, "cell", "exec"), names)
    html = getattr(value, "_repr_html_", None)
    shown.append(None if value is None else html() if html else repr(value))
json.dump(shown, sys.stderr)
"""


def run(cells: list[str], folder: Path) -> tuple[str, list[str | None]]:
    """Run the cells in one new process; return the printed text, and the value that each cell shows."""
    command = [sys.executable, "-P", "-c", KERNEL]
    done = subprocess.run(command, input=json.dumps(cells), capture_output=True, text=True, cwd=folder, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout, json.loads(done.stderr)


@pytest.mark.ci
def test_each_cell_of_the_notebook_runs_and_shows_what_the_text_says(prefix: str, tmp_path: Path) -> None:
    printed, shown = run(CODE, tmp_path)
    tables = [each for each in shown if each is not None and each.startswith("<table>")]
    titles = [found[1] for each in tables if (found := re.search(r"<caption>(.*?): [1-9]\d* rows? from", each))]
    assert titles == ["workers", "bricks", "tree", "sites", "bricks", "sites"]
    ratios = dict(re.findall(r"(\w+) +median of worker 1 is ([\d.]+) times", printed))
    assert "norm" in ratios
    assert float(ratios["gemm"]) > 1.2
    assert re.search(r"^gemm, layer 0, step .* \(notebook/0\), actual .* \(notebook/1\)", printed, re.MULTILINE)
    assert "notebook/0 and notebook/1 disagree" in tables[-1]
    assert shown[-1] == "[0, 0]"


def test_a_cell_that_raises_fails_the_run(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="ZeroDivisionError"):
        run(["x = 1", "x / 0"], tmp_path)
    assert run(["x = 1", "print(x)", "x + 1"], tmp_path) == ("1\n", [None, None, "2"])


def test_the_notebook_is_valid_and_has_no_outputs() -> None:
    assert (CONTENT["nbformat"], CONTENT["nbformat_minor"]) == (4, 5)
    cells = CONTENT["cells"]
    assert len({cell["id"] for cell in cells}) == len(cells)
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", cell["id"]) for cell in cells)
    assert {cell["cell_type"] for cell in cells} == {"code", "markdown"}
    assert [cell["id"] for cell in cells if cell.get("outputs") or cell.get("execution_count")] == []
    assert NOTEBOOK.read_text() == json.dumps(CONTENT, indent=1, ensure_ascii=False) + "\n"
    for cell in CODE:
        ast.parse(cell)


def test_the_links_of_the_notebook_lead_to_pages() -> None:
    text = "\n".join("".join(cell["source"]) for cell in CONTENT["cells"] if cell["cell_type"] == "markdown")
    targets = [found[2] for found in links.links(text)]
    assert targets
    assert [each for each in targets if not (NOTEBOOK.parent / each).exists()] == []
