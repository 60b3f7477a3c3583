"""`--processes`: each test runs once, in one of several forked processes, and all results reach the parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections import Counter
from multiprocessing import Pipe
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import forked_tests
import pytest
from conftest import ROOT
from forked_tests import CHUNK, chunks_of

CONFTEST = """
import os
from contextlib import contextmanager
from forked_tests import ForkedTests

@contextmanager
def around():
    note("process begins")
    yield
    note("process ends")
    if "CRASHES" in os.environ:
        os._exit(3)

def note(text):
    with open("notes", "a") as file:
        file.write(text + "\\n")

def pytest_configure(config):
    config.pluginmanager.register(ForkedTests(2, around))
"""

MIXED = """
import os, signal, warnings
import pytest
from conftest import note

@pytest.fixture(scope="module")
def shared():
    note("module begins")
    yield os.getpid()
    note("module ends")

@pytest.mark.parametrize("number", range(40))
def test_passes(shared, number, tmp_path):
    assert shared == os.getpid() != os.getppid()
    note(f"passes {number}")

def test_fails(shared):
    print("printed by the test")
    assert shared == 0

def test_skipped():
    pytest.skip("no reason")

@pytest.mark.xfail
def test_fails_as_expected():
    raise ValueError

@pytest.fixture
def broken():
    raise ValueError("broken fixture")

def test_error(broken):
    pass

def test_warns():
    warnings.warn("a warning of a test")

def test_crashes():
    os.kill(os.getpid(), signal.SIGKILL)

@pytest.mark.parametrize("number", range(40, 50))
def test_passes_later(number):
    note(f"passes {number}")
"""


def command(folder: Path, text: str, *options: str) -> list[str]:
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_it.py").write_text(text)
    return [sys.executable, "-P", "-m", "pytest", *options, "-c", "/dev/null", f"--rootdir={folder}", "test_it.py"]


def environment() -> dict[str, str]:
    path = os.pathsep.join(map(str, (ROOT / "tests" / "support", ROOT)))
    return os.environ | {"PYTHONPATH": path, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


def run(folder: Path, text: str, *options: str) -> tuple[subprocess.CompletedProcess[str], Counter[str]]:
    ended = subprocess.run(
        command(folder, text, *options), cwd=folder, env=environment(), capture_output=True, text=True, check=False
    )
    notes = folder / "notes"
    return ended, Counter(notes.read_text().splitlines() if notes.exists() else ())


@pytest.mark.ci
def test_a_test_that_reaches_its_timeout_fails_with_its_timeout_and_the_next_one_runs(tmp_path: Path) -> None:
    text = """
import signal
import pytest
from conftest import note

@pytest.mark.timeout(0.1, method="signal")
def test_hangs():
    signal.pause()

def test_goes_on():
    note("goes on")
"""
    ended, notes = run(tmp_path, text, "-p", "pytest_timeout")
    assert "Failed: Timeout" in ended.stdout, ended.stdout
    assert "1 failed, 1 passed" in ended.stdout
    assert notes["goes on"] == 1


def test_a_chunk_has_tests_of_one_file_and_each_test_once() -> None:
    files = ["a"] * (2 * CHUNK + 1) + ["b"] * 3 + ["c"]
    chunks = list(chunks_of([cast("pytest.Item", SimpleNamespace(path=path)) for path in files]))
    assert [len(chunk) for chunk in chunks] == [CHUNK, CHUNK, 1, 3, 1]
    assert [number for chunk in chunks for number in chunk] == list(range(len(files)))
    assert all(len({files[number] for number in chunk}) == 1 for chunk in chunks)
    assert list(chunks_of([])) == []


def test_a_stopped_process_finishes_only_its_test() -> None:
    ran: list[int] = []
    hook = SimpleNamespace(pytest_runtest_protocol=lambda item, nextitem: ran.append(item))
    config = SimpleNamespace(hook=hook, pluginmanager=SimpleNamespace(register=id))
    session = SimpleNamespace(config=config, items=[10, 11, 12], shouldfail="", shouldstop="")
    ours, its = Pipe()
    with ours, its:
        ours.send((0, 1, 2))
        ours.send(())
        forked_tests._run(cast("pytest.Session", session), its)
    assert ran == [10]


@pytest.mark.ci
def test_every_result_is_reported_once_also_of_a_test_that_crashes_its_process(tmp_path: Path) -> None:
    ended, notes = run(tmp_path, MIXED, "-ra", "--durations=2", "-vv", "--durations-min=0", "--junitxml=junit.xml")
    assert ended.returncode == 1, ended.stdout
    assert {f"passes {number}": notes[f"passes {number}"] for number in range(50)} == {
        f"passes {number}": 1 for number in range(50)
    }
    counts = "2 failed, 51 passed, 1 skipped, 1 xfailed, 1 warning, 1 error in "
    for part in (counts, "printed by the test", "ValueError: broken fixture", "no reason", "slowest 2 durations"):
        assert part in ended.stdout
    assert "test_it.py:46: a warning of a test" not in ended.stdout
    assert "UserWarning: a warning of a test" in ended.stdout
    assert "FAILED test_it.py::test_crashes - the process that ran this test crashed: SIGKILL" in ended.stdout
    suite = ET.parse(tmp_path / "junit.xml").getroot()[0]
    assert {key: suite.get(key) for key in ("tests", "failures", "errors", "skipped")} == {
        "tests": "56", "failures": "2", "errors": "1", "skipped": "2",
    }  # fmt: skip
    # A third process replaces the process that crashed. The fixtures of that process were never torn down.
    assert notes["process begins"] == notes["process ends"] + 1 == 3
    assert notes["module begins"] - notes["module ends"] in (0, 1)


@pytest.mark.ci
def test_after_the_first_failure_each_process_ends_its_fixtures_and_no_test_begins(tmp_path: Path) -> None:
    text = MIXED.replace('note(f"passes {number}")', "assert number != 3", 1)
    ended, notes = run(tmp_path, text, "-x")
    assert ended.returncode == 1, ended.stdout
    assert "stopping after 1 failures" in ended.stdout
    assert notes["module begins"] == notes["module ends"] > 0
    assert notes["process begins"] == notes["process ends"] == 2
    assert "passes 49" not in notes


@pytest.mark.ci
@pytest.mark.parametrize(
    ("text", "code", "printed"),
    [
        ("def test_passes(): pass", 0, "1 passed"),
        ("", 5, "no tests ran"),
        ("def test_passes(): pass\nraise ValueError", 2, "1 error during collection"),
        ("import os, pytest\n@pytest.fixture(scope='session')\ndef shared():\n    yield\n    os._exit(3)\n"
         "def test_passes(shared): pass", 1, "crashed: exit status 3"),
        ("import os\nos.environ['CRASHES'] = ''\ndef test_passes(): pass", 1, "after its last test: exit status 3"),
        ("def test_leaks():\n    left = [open('/dev/null')]\n    left.append(left)", 1, "unclosed file"),
        ("import pytest\ndef test_exits(): pytest.exit('enough')", 1, "enough"),
    ],
    ids=["passes", "empty", "not collected", "crashes at its end", "crashes after it", "leaks until its end", "exits"],
)  # fmt: skip
def test_the_exit_status_says_whether_all_is_well(tmp_path: Path, text: str, code: int, printed: str) -> None:
    ended, _ = run(tmp_path, text, "-W", "error")
    assert (ended.returncode, printed in ended.stdout) == (code, True), ended.stdout


@pytest.mark.ci
def test_an_interrupt_during_a_fork_ends_the_run(tmp_path: Path) -> None:
    text = """
import os, signal
os.register_at_fork(after_in_parent=lambda: os.kill(os.getpid(), signal.SIGINT))
def test_one(): pass
"""
    ended, _ = run(tmp_path, text)
    assert (ended.returncode, "KeyboardInterrupt" in ended.stdout) == (2, True), ended.stdout


@pytest.mark.ci
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_run_that_is_interrupted_or_killed_ends_its_processes_and_their_fixtures(
    tmp_path: Path, number: signal.Signals
) -> None:
    text = MIXED.replace('note(f"passes {number}")', "os.read(os.open('fifo', os.O_RDONLY), 1)", 1)
    os.mkfifo(tmp_path / "fifo")
    with subprocess.Popen(
        command(tmp_path, text), cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        with (tmp_path / "fifo").open("wb") as fifo:  # a test opens the other end of this pipe
            process.send_signal(number)
            if number == signal.SIGKILL:
                process.wait()
            fifo.write(bytes(100))
            fifo.flush()
            printed = process.stdout.read()  # reading ends when the last process has ended
        assert process.wait() == (2 if number == signal.SIGINT else -number)
    assert ("KeyboardInterrupt" in printed) == (number == signal.SIGINT)
    notes = Counter((tmp_path / "notes").read_text().splitlines())
    assert notes["process begins"] == notes["process ends"] == 2
    assert notes["module begins"] == notes["module ends"] > 0
