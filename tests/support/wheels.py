"""Builds wheels of this source tree, or of a copy with another version, and installs them into new environments.

Owns: how wheels are built and installed. Must not know: the tests that use them.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import venv
from importlib import metadata
from pathlib import Path

import pytest
from conftest import kept, version

ROOT = Path(__file__).parent.parent.parent
PROJECTS = {"brickd": ROOT, "brick_agent": ROOT / "agent"}
VERSION = (ROOT / "agent" / "VERSION").read_text().strip()


def pip(*arguments: str | Path, python: Path | str = sys.executable) -> subprocess.CompletedProcess[str]:
    command = [python, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def copied(to: Path) -> Path:
    """Copy the source tree without the files of earlier builds."""
    left = shutil.ignore_patterns(".*", "build", "*.egg-info", "tests", "__pycache__")
    shutil.copytree(ROOT, to, symlinks=True, ignore=left)
    return to


def edited(tree: Path, version: str, minor: int) -> Path:
    """Give a copy of the source tree another version, and its format this minor version."""
    (tree / "agent" / "VERSION").write_text(f"{version}\n")
    header = tree / "agent" / "include" / "brick_shm.h"
    text, changed = re.subn(r"(?m)^#define BRICK_MINOR \d+$", f"#define BRICK_MINOR {minor}", header.read_text())
    assert changed == 1
    header.write_text(text)
    return tree


def build_wheels(folder: Path, *sources: Path) -> None:
    """Build a wheel of each source tree or distribution."""
    for source in sources:
        built = pip("wheel", "--no-build-isolation", "--no-deps", "-w", folder, source)
        assert built.returncode == 0, built.stderr


def distributions() -> Path:
    """Return a folder with both source distributions, and the wheels that were built from them. All test files share
    one build.
    """
    with tempfile.TemporaryDirectory() as place:
        tree = copied(Path(place) / "tree")
        files = sorted(path for path in tree.rglob("*") if path.is_file())
        contents = (part for path in files for part in (str(path.relative_to(tree)).encode(), path.read_bytes()))
        tools = (sys.version, metadata.version("setuptools"), version("gcc").decode())

        def make(folder: Path) -> None:
            folder.mkdir()
            projects = (tree / path.relative_to(ROOT) for path in PROJECTS.values())
            build_wheels(folder, *(_source_distribution(project, folder) for project in projects))

        return kept("distributions", (*map(str.encode, tools), *contents), make)


def _source_distribution(project: Path, folder: Path) -> Path:
    code = "import sys; from setuptools import build_meta; print(build_meta.build_sdist(sys.argv[1]))"
    command: list[str | Path] = [sys.executable, "-c", code, folder]
    built = subprocess.run(command, cwd=project, capture_output=True, text=True, check=True)
    return folder / built.stdout.splitlines()[-1]


def fetch_needed(folder: Path) -> None:
    """Fetch the packages that brickd needs; skip the test if this is impossible."""
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    fetched = pip("download", "--only-binary", ":all:", "-d", folder, *needed)
    if fetched.returncode:
        pytest.skip(f"the packages that brickd needs cannot be fetched: {fetched.stderr.splitlines()[-1]}")


def environment_of(place: Path, folder: Path, *wanted: str) -> Path:
    """Create a new environment with these distributions from a folder; return the folder of its programs."""
    venv.create(place, with_pip=True)
    install(place / "bin", folder, *wanted)
    return place / "bin"


def install(programs: Path, folder: Path, *wanted: str) -> None:
    """Install these distributions from a folder into an environment, or upgrade them."""
    installed = pip("install", "--no-index", "--find-links", folder, *wanted, python=programs / "python")
    assert installed.returncode == 0, installed.stderr


def outside() -> dict[str, str]:
    """Return the environment variables, except those through which another Python would find the packages of this
    one.
    """
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


def ran(programs: Path, at: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a program of an environment."""
    return subprocess.run(
        [programs / command[0], *command[1:]], cwd=at, env=outside(), capture_output=True, text=True, check=False
    )
