"""A library makes a program die at one of its effects on files. It acts only at this effect."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from faults import Compile, fault_at

from brickd.shm import _reader

# Writes a checkpoint and a tail as a daemon does. Each line has one effect on files.
STEPS = (
    "new = os.open('new', os.O_CREAT | os.O_RDWR)",
    "os.write(new, b'checkpoint')",
    "os.ftruncate(new, 8)",
    "os.fsync(new)",
    "fcntl.lockf(new, fcntl.LOCK_EX | fcntl.LOCK_NB)",
    "os.replace('new', 'kept')",
    "os.pwrite(new, b'tail', 4)",
    "for error in _reader.write_all([(new, 4, b'TAIL')]).values(): raise OSError(error, 'a tail')",
    "os.unlink('old')",
)
TOLD = ["open new", "write new", "ftruncate new", "fsync new", "lock new", "rename kept"]
TOLD += ["pwrite kept", "pwrite kept", "unlink old"]
# the name and the content of the file if only half of a write is done, keyed by the number of the effect
HALF = {2: ("new", b"check"), 7: ("kept", b"checta"), 8: ("kept", b"checTAil")}
LOCK, RENAME, UNLINK = 5, 6, 9

PROGRAM = """
import fcntl
import os
import sys
from brickd.shm import _reader
print("begun", end=" ", flush=True)  # to a pipe: no effect on a file
errors = []
for step in sys.argv[1:]:
    try:
        exec(step)
        errors.append(0)
    except OSError as error:
        errors.append(error.errno)
print(*errors)
"""

Files = dict[str, bytes]


def fresh(folder: Path) -> Path:
    folder.mkdir()
    (folder / "old").write_bytes(b"")
    return folder


def files(folder: Path) -> Files:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def after(folder: Path, steps: tuple[str, ...]) -> Files:
    """Return the files after these steps, without a fault."""
    known: dict[str, Any] = {"os": os, "fcntl": fcntl, "_reader": _reader}
    with contextlib.chdir(fresh(folder)):
        for step in steps:
            exec(step, known)
    if "new" in known:
        os.close(known["new"])
    return files(folder)


def start(folder: Path, environment: dict[str, str], *, log: int | None = None) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-P", "-c", PROGRAM, *STEPS],
        cwd=folder,
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        pass_fds=[] if log is None else [log],
    )


def errors(process: subprocess.Popen[str]) -> list[int]:
    """Return the result of each step, which is 0 or the number of an error."""
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 0, stderr
    return [int(word) for word in stdout.removeprefix("begun ").split()]


@pytest.mark.ci
def test_each_effect_is_reported_before_it_begins(tmp_path: Path, compiled: Compile) -> None:
    folder = fresh(tmp_path / "at")
    reading, log_fd = os.pipe()
    process = start(folder, fault_at(compiled, under=(folder,), log=log_fd), log=log_fd)
    os.close(log_fd)
    with open(reading) as lines:
        assert lines.read().splitlines() == [
            f"{n} {step.split()[0]} {folder / step.split()[1]}" for n, step in enumerate(TOLD, start=1)
        ]
    assert errors(process) == [0] * len(STEPS)


@pytest.mark.ci
@pytest.mark.parametrize(
    ("action", "numbers"),
    [("kill-before", (1, RENAME)), ("kill-after", (1, RENAME, UNLINK)), ("kill-half", range(1, len(STEPS) + 1))],
)
def test_a_kill_keeps_finished_work(tmp_path: Path, compiled: Compile, action: str, numbers: Iterable[int]) -> None:
    folders = {n: fresh(tmp_path / f"at {n}") for n in numbers}
    started = {n: start(folders[n], fault_at(compiled, f"{action}:{n}", (folders[n],))) for n in numbers}
    for n, process in started.items():
        assert process.communicate(timeout=60) == ("begun ", "")
        assert process.returncode == -signal.SIGKILL
        expected = after(tmp_path / f"until {n}", STEPS[: n if action == "kill-after" else n - 1])
        if action == "kill-half" and n in HALF:
            name, content = HALF[n]
            expected[name] = content + expected[name][len(content) :]
        assert files(folders[n]) == expected


def test_the_n_th_effect_of_one_name_is_selected(tmp_path: Path, compiled: Compile) -> None:
    folder = fresh(tmp_path / "at")
    reading, log_fd = os.pipe()
    process = start(folder, fault_at(compiled, "kill-half:2", (folder,), log_fd, "pwrite"), log=log_fd)
    os.close(log_fd)
    with open(reading) as lines:
        assert [line.split()[:2] for line in lines] == [[str(n), step.split()[0]] for n, step in enumerate(TOLD[:8], 1)]
    assert process.communicate(timeout=60) == ("begun ", "")
    assert files(folder)["kept"] == HALF[8][1]


def test_without_paths_only_regular_files_count(tmp_path: Path, compiled: Compile) -> None:
    folder = fresh(tmp_path / "at")
    process = start(folder, fault_at(compiled, "kill-after:1") | {"PYTHONDONTWRITEBYTECODE": "1"})
    assert process.communicate(timeout=60) == ("begun ", "")
    assert files(folder) == {"old": b"", "new": b""}


@pytest.mark.ci
def test_a_partial_write_is_reported_and_completed_by_the_caller(tmp_path: Path, compiled: Compile) -> None:
    through_python, through_c = (fresh(tmp_path / name) for name in ("python", "c"))
    first = start(through_python, fault_at(compiled, "short:2", (through_python,)))
    second = start(through_c, fault_at(compiled, "short:8", (through_c,)))
    assert errors(first) == errors(second) == [0] * len(STEPS)
    assert files(through_python) == {"kept": b"checTAIL"}
    assert files(through_c) == {"kept": b"checTAIL"}


@pytest.mark.ci
@pytest.mark.parametrize(("action", "error"), [("enospc", errno.ENOSPC), ("eio", errno.EIO)])
def test_an_error_occurs_once_or_from_then_on(tmp_path: Path, compiled: Compile, action: str, error: int) -> None:
    once, onward, all_along = (fresh(tmp_path / name) for name in ("once", "onward", "all along"))
    started = [
        start(once, fault_at(compiled, f"{action}:4", (once,))),
        start(onward, fault_at(compiled, f"{action}-on:4", (onward,))),
        start(all_along, fault_at(compiled, f"{action}-on:1", (tmp_path / "nowhere", all_along / "old"))),
    ]
    expected = [0, 0, 0, *[error] * 6]
    expected[LOCK - 1] = 0
    if error == errno.ENOSPC:
        expected[UNLINK - 1] = 0
    assert errors(started[0]) == [0, 0, 0, error, 0, 0, 0, 0, 0]
    assert errors(started[1]) == expected
    assert errors(started[2]) == [0] * 8 + expected[-1:]


@pytest.mark.parametrize(
    "plan", ["", "kill", "kill-before", "kill-before:", "kill-before:0", "kill-before:1x", "eio:-1"]
)
def test_an_invalid_plan_ends_the_program(tmp_path: Path, compiled: Compile, plan: str) -> None:
    done = subprocess.run(["true"], env=fault_at(compiled, plan), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, f"BRICKD_TEST_FAULT={plan}: see fault_at.c\n")
