"""A copy of the repository with all selected mutants, installed into its own environment.

Owns: the copy and the installation. Must not know: how mutants are selected, tests.
"""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from mutation import c_sites, python_sites
from mutation.sites import Site

HERE = Path(__file__).resolve().parent
_LEFT_OUT = shutil.ignore_patterns(
    ".git", ".venv", "build", "*.egg-info", "__pycache__", ".*_cache", ".hypothesis", "*.so", "*.o"
)
_INCLUDES = ("agent/include", "agent/src", "brickd/reader")


def find(tree: Path, paths: Sequence[Path]) -> list[Site]:
    found: list[Site] = []
    for path in paths:
        language = python_sites if path.suffix == ".py" else c_sites
        found += language.sites(str(path.relative_to(tree)), path.read_text())
    return found


def copy(tree: Path, to: Path) -> None:
    """Copy the files that a build and the tests need."""
    shutil.copytree(tree, to, ignore=_LEFT_OUT, symlinks=True)
    for package in ("brickd", "agent/brick_agent"):
        shutil.copy(HERE / "chosen.py", to / package / "_mutant.py")
    shutil.copy(HERE / "brick_mutant.h", to / "agent" / "include")


def change(tree: Path, to: Path, mutants: Mapping[int, Site]) -> list[int]:
    """Write the changed sources into a copy.

    Args:
        tree: the original.
        to: the copy.
        mutants: the mutants, by number.

    Returns:
        The numbers of those mutants that are not valid C, or that are in code for another kind of machine.
    """
    by_file: dict[str, dict[int, int]] = defaultdict(dict)
    for number, site in mutants.items():
        by_file[site.file][site.place] = number
    broken: list[int] = []
    for file, chosen in by_file.items():
        text = (tree / file).read_text()
        if file.endswith(".py"):
            (to / file).write_text(python_sites.changed(file, text, chosen))
            continue
        if not _compiles(to, file, c_sites.changed(file, text, chosen)):
            bad = {
                place: number
                for place, number in chosen.items()
                if not _compiles(to, file, c_sites.changed(file, text, {place: number}))
            }
            broken += bad.values()
            for place in bad:
                del chosen[place]
        if chosen:
            changed = c_sites.changed(file, text, chosen)
            kept = _gcc(to, file, changed, "-E", "-fdirectives-only").stdout
            broken += [number for number in chosen.values() if f"BRICK_MUTANT({number})" not in kept]
            (to / file).write_text(changed)
    return sorted(broken)


def _compiles(to: Path, file: str, text: str) -> bool:
    return _gcc(to, file, text, "-fsyntax-only").returncode == 0


def _gcc(to: Path, file: str, text: str, *options: str) -> subprocess.CompletedProcess[str]:
    folder = (to / file).parent
    python = sysconfig.get_path("include")
    flags = [flag for include in (folder, *(to / each for each in _INCLUDES), python) for flag in ("-I", str(include))]
    command = ["gcc", "-std=c11", "-D_GNU_SOURCE", *options, "-x", "c", *flags, "-"]
    return subprocess.run(command, input=text, text=True, capture_output=True, check=False)


def install(to: Path, venv: Path) -> Path:
    """Install the copy into an environment on top of the existing one, and return its Python.

    Raises:
        subprocess.CalledProcessError: with the output of pip.
    """
    own = to / ".venv"
    subprocess.run([venv / "bin" / "python", "-m", "venv", "--without-pip", own], check=True)
    version = f"python{sysconfig.get_python_version()}"
    (own / "lib" / version / "site-packages" / "beside.pth").write_text(f"{venv}/lib/{version}/site-packages\n")
    python = own / "bin" / "python"
    pip = f"{venv}/bin/python -m pip --python {python} --quiet --disable-pip-version-check".split()
    options = ["--no-deps", "--no-build-isolation", "--ignore-installed"]
    done = subprocess.run(
        [*pip, "install", *options, "./agent", "."], cwd=to, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise subprocess.CalledProcessError(done.returncode, "pip install", done.stdout, done.stderr)
    return python
