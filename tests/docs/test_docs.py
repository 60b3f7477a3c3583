"""The tests that the pages under docs/ name exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from conftest import ROOT
from test_imports import ROOMS

PAGES = sorted((ROOT / "docs").glob("*.md"))
_TEST = re.compile(r"`(test_\w+\.py)(?:::(test_\w+))?`")


def named(text: str) -> list[tuple[str, str]]:
    """Return the tests that a page names. For each, return the file, and also the function if the page names it."""
    return _TEST.findall(text)


def missing(text: str) -> list[str]:
    """Return the named tests that do not exist."""
    found = []
    for file, function in named(text):
        path = next((ROOT / "tests").glob(f"*/{file}"), None)
        if path is None or (function and f"def {function}(" not in path.read_text()):
            found.append(f"{file}::{function}")
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.name))
def test_each_test_that_a_page_names_exists(page: Path) -> None:
    assert missing(page.read_text()) == []


def test_a_missing_test_is_found() -> None:
    text = "`test_docs.py::test_a_missing_test_is_found` `test_docs.py::test_no` `test_none.py`"
    assert missing(text) == ["test_docs.py::test_no", "test_none.py::"]


@pytest.mark.parametrize("heading", ["Who can do what", "Attacks"])
def test_each_row_of_the_security_page_names_a_test(heading: str) -> None:
    _, _, section = (ROOT / "docs" / "security.md").read_text().partition(f"\n## {heading}\n")
    _, *rows = [line for line in section.partition("\n## ")[0].splitlines() if line.startswith("| ")]
    assert len(rows) >= 8
    assert [row for row in rows if not named(row) and "as above" not in row.rpartition("| ")[0]] == []


def test_the_porting_status_page_has_fifty_rows_with_a_test_each() -> None:
    _, *rows = re.findall(r"^\| (?!---)(.*) \|$", (ROOT / "docs" / "porting-status.md").read_text(), re.MULTILINE)
    assert len(rows) == 50
    assert [row for row in rows if "::" not in row.rpartition(" | ")[2]] == [], (
        "the name of a file states no fact, so name a function"
    )
    statuses = {row.split(" | ")[2] for row in rows}
    assert statuses == {"works", "other name", "mended", "replaced", "not here"}


def test_each_protocol_of_the_seed_has_a_test_with_its_number() -> None:
    texts = [path.read_text() for path in (ROOT / "tests" / "compat").glob("*.py")]
    numbers = {int(number) for text in texts for number in re.findall(r"^def test_f(\d+)_", text, re.MULTILINE)}
    assert numbers == set(range(101, 111))


CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()


def test_paths_and_tests_in_contributing_exist() -> None:
    paths = re.findall(r"`((?:agent|brickd|tests|scripts|docs)/[\w./]+)`", CONTRIBUTING)
    assert len(paths) > 25
    assert [path for path in paths if not (ROOT / path).exists()] == []
    tests = re.findall(r"`(test_\w+)`", CONTRIBUTING)
    assert len(tests) > 25
    assert [name for name in tests if not list((ROOT / "tests").glob(f"*/{name}.py"))] == []


def test_contributing_lists_the_rooms_in_import_order() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", CONTRIBUTING, re.MULTILINE)
    assert tuple(rows) == ROOMS


def test_functions_in_the_walks_of_contributing_exist() -> None:
    walks = re.findall(r"`((?:agent|brickd)/[\w./]+)`(?::|\n   )\s*`([\w.]+)`", CONTRIBUTING)
    assert len(walks) >= 8
    for path, function in walks:
        assert re.search(rf"\b{function.rpartition('.')[2]}\(", (ROOT / path).read_text()), (path, function)


def test_ci_names_test_files_that_exist() -> None:
    (names,) = re.findall(r"tests/\{([^}]*)\}\.py", (ROOT / ".ci" / "run").read_text())
    assert [name for name in names.split(",") if not (ROOT / "tests" / f"{name}.py").exists()] == []
