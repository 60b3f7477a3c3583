"""scripts/install: what it reinstalls, where its pip comes from, and what happens when it is interrupted.

The script runs in a checkout of a few empty files, with a Python whose pip only logs its arguments.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

pytestmark = pytest.mark.ci  # these tests check a script, not brickd

# A Python for the tests: `-m venv` makes .venv without pip, and pip only writes a log. If it is told to build
# `./$BLOCKS`, it starts a child that runs until a signal ends it.
PYTHON = """#!/bin/sh
case "$*" in
"-m venv "*) rm -rf .venv && mkdir -p .venv/bin && cp "$0" .venv/bin/python ;;
"-m pip --version") [ -n "${OTHER_PIP-}" ] ;;
*" install "*)
    echo "$*" >>log
    case $* in *setuptools*) cp "$0" .venv/bin/pip ;; esac
    case $* in *"${FAILS:-no such}") exit 1 ;; esac
    if [ "$*" != "${*%"${BLOCKS:-no such}"}" ]; then sh -c 'echo; read line <never'; fi ;;
--version) echo "Python $VERSION" ;;
*) exec "$REAL" "$@" ;;
esac
"""
# Makes the Python of the tests report another version and another folder of wheels.
OTHER_BUILD = """
import os, sys, sysconfig
sys.version_info = tuple(map(int, os.environ["VERSION"].split(".")))
sysconfig.get_config_vars().update(WHEEL_PKG_DIR=os.environ["WHEELS"], installed_base="other")
"""
SETUPTOOLS, NEEDED = "setuptools>=77", ".venv/needed"
ALL = ["./agent", ".", NEEDED]


class Checkout:
    """A checkout with scripts/install, and nothing to compile."""

    def __init__(self, root: Path) -> None:
        self.root, self.log = root, root / "log"
        self.env = dict(os.environ, PYTHON="python/python3", REAL=sys.executable, PYTHONPATH="python")
        self.env |= {"VERSION": "3.11.0", "WHEELS": "", "CC": "gcc"}
        for name in ("pyproject.toml", "brickd/x.py", "agent/pyproject.toml", "agent/src/x.c", "agent/include/x.h"):
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text('[project]\ndependencies = ["a"]\noptional-dependencies.test = ["b"]\n')
            os.utime(path, (0, 0))
        for name, text in (("python3", PYTHON), ("sitecustomize.py", OTHER_BUILD)):
            (root / "python").mkdir(exist_ok=True)
            (root / "python" / name).write_text(text)
            (root / "python" / name).chmod(0o755)
        (root / "scripts").mkdir()
        shutil.copy(ROOT / "scripts" / "install", root / "scripts")
        self.wheel("bundled")
        os.mkfifo(root / "never")

    def wheel(self, folder: str) -> str:
        """Put the wheel of pip into a folder of this Python."""
        where = {"bundled": "other/lib/python{}.{}/ensurepip/_bundled".format(*sys.version_info)}.get(folder, folder)
        (self.root / where).mkdir(parents=True, exist_ok=True)
        (self.root / where / "pip-1.whl").touch()
        return f"{where}/pip-1.whl"

    def begin(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Start the script as the leader of a process group."""
        command = [str(self.root / "scripts" / "install"), *arguments]
        return subprocess.Popen(
            command,
            env=self.env,
            cwd=self.root,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )

    def install(self, *arguments: str, status: int = 0) -> str:
        """Run the script to its end; return its messages."""
        self.log.unlink(missing_ok=True)
        begun = self.begin(*arguments)
        messages = begun.communicate()[1].decode()
        assert begun.returncode == status, messages
        return messages

    @property
    def calls(self) -> list[str]:
        """Return the calls of pip by the last run."""
        return self.log.read_text().splitlines() if self.log.exists() else []

    @property
    def installed(self) -> list[str]:
        """Return what the jobs installed; sorted, because the jobs run at the same time."""
        return sorted((each.split()[-1] for each in self.calls), key=[SETUPTOOLS, *ALL].index)

    def change(self, name: str) -> None:
        os.utime(self.root / name)


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def test_the_second_run_does_nothing(checkout: Checkout) -> None:
    checkout.install("--tests")
    assert checkout.installed == [SETUPTOOLS, *ALL]
    assert (checkout.root / NEEDED).read_text() == "a\nb\n"
    assert (checkout.install("--tests"), checkout.calls) == ("", [])
    assert (checkout.install(), checkout.calls) == ("", [])


def test_test_packages_are_installed_on_request_and_stay(checkout: Checkout) -> None:
    checkout.install()
    assert (checkout.root / NEEDED).read_text() == "a\n"
    checkout.install("--tests")
    assert (checkout.root / NEEDED).read_text() == "a\nb\n"
    checkout.change("pyproject.toml")
    checkout.install()
    assert (checkout.root / NEEDED).read_text() == "a\nb\n"


def test_only_the_changed_distribution_is_built_again(checkout: Checkout) -> None:
    checkout.install()
    for changed, again in (("brickd/x.py", ["."]), ("agent/src/x.c", ["./agent"]), ("agent/include/x.h", ALL[:2])):
        checkout.change(changed)
        checkout.install()
        assert checkout.installed == again, changed
    checkout.change("agent/pyproject.toml")
    checkout.install()
    assert checkout.installed == [SETUPTOOLS, *ALL]


def test_failed_work_is_tried_again(checkout: Checkout) -> None:
    checkout.env["FAILS"] = "./agent"
    assert "not installed: see the messages above" in checkout.install(status=1)
    del checkout.env["FAILS"]
    checkout.install()
    assert set(checkout.installed) >= set(ALL)


def test_an_environment_with_a_missing_python_is_made_again(checkout: Checkout) -> None:
    checkout.install()
    (checkout.root / ".venv" / "bin" / "python").unlink()
    checkout.change("brickd/x.py")
    assert "making .venv" in checkout.install()
    assert checkout.installed == [SETUPTOOLS, *ALL]


def test_an_old_python_is_refused(checkout: Checkout) -> None:
    checkout.env["VERSION"] = "3.10.9"
    assert checkout.install(status=2) == (
        "scripts/install: Python 3.10.9 found, Python 3.11 or later required: set PYTHON=/path/to/python3.11\n"
    )
    assert not (checkout.root / ".venv").exists()


@pytest.mark.parametrize("wheels", ["", "wheels"])
def test_pip_comes_from_the_folder_where_the_distribution_keeps_it_or_from_pythons_own(
    checkout: Checkout, wheels: str
) -> None:
    checkout.env["WHEELS"] = wheels
    wheel = checkout.wheel(wheels or "bundled")
    checkout.install()
    pip, *arguments = checkout.calls[0].split()
    assert (pip, arguments[-2:]) == (f"{wheel}/pip", [wheel, SETUPTOOLS])


def test_an_empty_folder_of_the_distribution_hides_no_wheel(checkout: Checkout) -> None:
    checkout.env["WHEELS"] = "empty"
    checkout.install()
    assert checkout.calls[0].split()[0] == f"{checkout.wheel('bundled')}/pip"


def test_without_a_wheel_the_pip_of_the_other_python_installs_one(checkout: Checkout) -> None:
    (checkout.root / checkout.wheel("bundled")).unlink()
    assert "has no pip for .venv: apt-get install python3-venv" in checkout.install(status=2)
    assert checkout.calls == []
    checkout.env["OTHER_PIP"] = "yes"
    checkout.install()
    call = checkout.calls[0].split()
    assert (call[:4], call[-2:]) == (["-m", "pip", "--python", ".venv/bin/python"], ["pip", SETUPTOOLS])


def test_a_second_run_at_the_same_time_waits_and_then_does_nothing(checkout: Checkout) -> None:
    checkout.env["BLOCKS"] = "./agent"
    with checkout.begin() as first:
        assert first.stdout is not None
        with open(checkout.root / "never", "r+b", buffering=0) as never:
            assert first.stdout.read(1) == b"\n"  # wait until the child of pip runs
            with checkout.begin() as second:
                assert second.stderr is not None
                assert second.stderr.readline() == (
                    b"scripts/install: waiting for another scripts/install in this checkout\n"
                )
                never.write(b"\n")
                first.communicate()
                second.communicate()
    assert (first.returncode, second.returncode) == (0, 0)
    assert checkout.installed == [SETUPTOOLS, *ALL]  # each project was installed once


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_an_interrupted_run_leaves_no_process(checkout: Checkout, number: signal.Signals, status: int) -> None:
    checkout.env["BLOCKS"] = "./agent"
    with checkout.begin() as begun:
        assert begun.stdout is not None
        try:
            assert begun.stdout.read(1) == b"\n"  # wait until the child of pip runs
            os.killpg(begun.pid, number)  # send the signal to the process group, as a terminal does
            assert begun.wait() == status
            assert select.select([begun.stdout], [], [], 5)[0], "a process still has the script's standard output"
        finally:
            released = os.open(checkout.root / "never", os.O_RDWR)
            os.write(released, b"\n")
            os.close(released)
    del checkout.env["BLOCKS"]
    checkout.install()
    assert set(checkout.installed) >= {"./agent", NEEDED}
