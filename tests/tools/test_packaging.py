"""Both distributions have the same version, which fits the changelog. Their wheels are for the same versions of
Python.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent.parent
VERSION = (ROOT / "agent" / "VERSION").read_text().strip()
FILES = (ROOT / "pyproject.toml", ROOT / "agent" / "pyproject.toml")


def tables(name: str) -> list[dict[str, Any]]:
    return [tomllib.loads(file.read_text())[name] for file in FILES]


def test_agent_version_is_the_version_of_both_distributions() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", VERSION)
    assert [project.get("version") for project in tables("project")] == [None, None]
    assert {metadata.version(name) for name in ("brickd", "brick-agent")} == {VERSION}


def in_step(changelog: str, version: str) -> bool:
    """Return whether the first section is for this version, or is "Unreleased" and no later section is for this
    version.
    """
    first, *rest = re.findall(r"^## (\S+)$", changelog, re.MULTILINE)
    return bool(first == version or (first == "Unreleased" and version not in rest))


@pytest.mark.parametrize(
    ("changelog", "expected"),
    [
        ("## Unreleased\n### Fixed\n", True),
        ("## Unreleased\n## 0.9.0\n", True),
        ("## 1.0.0\n## 0.9.0\n", True),
        ("## Unreleased\n## 1.0.0\n", False),
        ("## 0.9.0\n", False),
        ("## 1.1.0\n## 1.0.0\n", False),
    ],
)
def test_the_changelog_check_compares_the_version(changelog: str, expected: bool) -> None:
    assert in_step(changelog, "1.0.0") == expected


def test_the_changelog_matches_the_version() -> None:
    assert in_step((ROOT / "CHANGELOG.md").read_text(), VERSION)


def test_wheels_are_built_for_each_python_that_is_supported() -> None:
    for project, tool in zip(tables("project"), tables("tool"), strict=True):
        supported = re.findall(r":: (3\.\d+)$", "\n".join(project["classifiers"]), re.MULTILINE)
        assert supported == ["3.11", "3.12", "3.13", "3.14"]
        assert project["requires-python"] == f">={supported[0]}"
        wheels = [f"cp{version.replace('.', '')}-manylinux_*" for version in supported]
        assert (tool["cibuildwheel"]["build"], tool["cibuildwheel"]["archs"]) == (wheels, ["auto64"])


def packages_imported(files: Iterable[Path]) -> set[str]:
    """Return the packages that modules import when they are loaded."""
    names = {name for file in files for name in re.findall(r"(?m)^(?:import|from) (\w+)", file.read_text())}
    return {name.replace("_", "-") for name in names - sys.stdlib_module_names - {"brickd", "brick_agent"}}


def test_brickd_requires_each_package_that_its_modules_import() -> None:
    brickd, _ = tables("project")

    def named(requirements: list[str]) -> set[str]:
        return {re.split("[^\\w-]", each)[0] for each in requirements}

    # `brickd top` loads these only if its extra is installed
    on_terminal = {ROOT / "brickd/top/app.py", ROOT / "brickd/top/terminal.py"}
    required = named(brickd["dependencies"])
    assert packages_imported(set((ROOT / "brickd").glob("**/*.py")) - on_terminal) <= required
    assert packages_imported(on_terminal) <= required | named(brickd["optional-dependencies"]["top"])


def test_the_demo_extra_requires_the_agent_and_nothing_else_does() -> None:
    brickd, agent = tables("project")
    assert brickd["optional-dependencies"]["demo"] == ["brick-agent"]
    assert [each for each in brickd["dependencies"] if each.startswith("brick")] == []
    assert agent["dependencies"] == []
