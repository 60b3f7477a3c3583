"""The source distributions of brickd and brick-agent build wheels that contain everything and run in a new
environment."""

from __future__ import annotations

import shutil
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest
from wheels import PROJECTS, VERSION, distributions, environment_of, fetch_needed, pip, ran

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the folder with both source distributions, and the wheels that were built from them."""
    return shutil.copytree(distributions(), tmp_path_factory.mktemp("distributions") / "all")


def wheel(folder: Path, name: str) -> Path:
    (found,) = folder.glob(f"{name}-*.whl")
    return found


@pytest.mark.parametrize("name", PROJECTS)
def test_a_wheel_is_for_this_python_and_platform(folder: Path, name: str) -> None:
    python = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    assert wheel(folder, name).name == f"{name}-{VERSION}-{python}-{python}-{platform}.whl"


def contents(project: Path) -> dict[str, bytes]:
    """Return the Python files and stubs of a project's package as imports find them; imports follow links."""
    package = "brick_agent" if project.name == "agent" else "brickd"
    found = [path for suffix in ("py", "pyi", "typed") for path in (project / package).glob(f"**/*.{suffix}")]
    linked = [
        each
        for link in (project / package).glob("**/*")
        if link.is_symlink() and link.is_dir()
        for each in link.glob("**/*.py")
    ]
    return {str(path.relative_to(project)): path.read_bytes() for path in (*found, *linked)}


@pytest.mark.parametrize("name", PROJECTS)
def test_both_distributions_contain_each_file_of_the_package_and_links_as_files(folder: Path, name: str) -> None:
    expected = contents(PROJECTS[name])
    with zipfile.ZipFile(wheel(folder, name)) as archive:
        packed = {each: archive.read(each) for each in archive.namelist() if each.endswith((".py", ".pyi", ".typed"))}
    assert packed == expected
    with tarfile.open(folder / f"{name}-{VERSION}.tar.gz") as archive:
        assert [each.name for each in archive if not each.isfile() and not each.isdir()] == []
        for path, content in expected.items():
            member = archive.extractfile(f"{name}-{VERSION}/{path}")
            assert member is not None
            assert member.read() == content


@pytest.fixture(scope="module")
def environment(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a new environment with brickd[demo] from the wheels; skip the test if the packages that brickd needs are
    missing.
    """
    fetch_needed(folder)
    return environment_of(tmp_path_factory.mktemp("environment"), folder, "brickd[demo]")


def test_installed_wheels_have_the_version_and_load_their_own_modules(environment: Path, tmp_path: Path) -> None:
    assert ran(environment, tmp_path, "brickd", "--version").stdout == f"brickd {VERSION}\n"
    code = (
        "import brickd.shm._reader as r, brickd.analysis.roofline._peaks as p, brick_agent._core as c;"
        " print(r.__file__, p.__file__, c.__file__)"
    )
    loaded = ran(environment, tmp_path, "python", "-c", code).stdout.split()
    assert len(loaded) == 3
    assert all(file.startswith(str(environment.parent)) for file in loaded)


@pytest.mark.usefixtures("prefix")
def test_the_demo_runs_from_the_wheels_and_names_the_damaged_worker(environment: Path, tmp_path: Path) -> None:
    ended = ran(environment, tmp_path, "brickd", "demo", "--seconds", "6")
    assert ended.returncode == 0, ended.stderr
    assert "demo/1 differs in layers.2.mlp.down.weight" in ended.stdout


@pytest.mark.usefixtures("prefix")
def test_without_the_agent_the_demo_names_the_package_to_install(environment: Path, tmp_path: Path) -> None:
    assert pip("uninstall", "--yes", "brick-agent", python=environment / "python").returncode == 0
    ended = ran(environment, tmp_path, "brickd", "demo", "--seconds", "1")
    assert (ended.returncode, "pip install" in ended.stderr) == (2, True)
    assert ran(environment, tmp_path, "brickd", "status", "--json").returncode == 0
