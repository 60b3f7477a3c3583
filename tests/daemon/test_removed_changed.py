"""Dead segments that a new worker must keep: they have changed, belong to another user, or are open in its process."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import forge
import pytest
from conftest import SHM, Worker
from faults import Compile, native, needs_namespaces, program
from removals import GREEDY, dead, newcomer, records

from brickd.shm.segment import open_segment
from brickd.shm.segment_files import find


@contextmanager
def between_two(compiled: Compile, prefix: str) -> Iterator[tuple[Worker, str, str]]:
    """Start a worker that finds two dead segments, writes a record of the first, and stops before it removes this
    segment.
    """
    with dead(compiled, prefix, 10, 20) as (first, second):
        with native(program(compiled, "removed", *GREEDY), "0", "fork", "1") as process:
            assert process.next_report() == "forked"
            yield process, first, second
        assert process.process.returncode == 0


def replace(file: str) -> None:
    """Replace a file by another file with the same bytes."""
    shutil.copy(SHM / file, SHM / f"draft-{file}")
    (SHM / f"draft-{file}").replace(SHM / file)


def go_on(process: Worker, more: int) -> None:
    """Let the worker continue: it removes the recorded segment, and then writes records of `more` other segments."""
    process.go()
    for _ in range(more):
        assert process.next_report() == "forked"
        process.go()
    process.paused()
    process.go()
    process.end()


@pytest.mark.ci
def test_a_file_that_replaced_a_recorded_segment_is_kept(compiled: Compile, prefix: str) -> None:
    with between_two(compiled, prefix) as (process, first, _):
        replace(first)
        go_on(process, 1)
        assert find(prefix) == [first]
    assert [each["begun"] for each in records(prefix)] == [10, 20]


@pytest.mark.ci
@pytest.mark.parametrize(
    "how", ["replaced", *(pytest.param(each, marks=pytest.mark.ci) for each in ("linked", "read by a daemon"))]
)
def test_a_dead_segment_that_changed_since_it_was_examined_is_kept_unrecorded(
    compiled: Compile, prefix: str, how: str
) -> None:
    with between_two(compiled, prefix) as (process, _, second), ExitStack() as until:
        if how == "replaced":
            replace(second)
        elif how == "linked":
            (SHM / f"link-{second}").hardlink_to(SHM / second)
            until.callback((SHM / f"link-{second}").unlink)
        else:
            segment = until.enter_context(open_segment(second, os.O_RDWR))
            assert segment.consume()
        go_on(process, 0)
        assert find(prefix) == [second]
    assert [each["begun"] for each in records(prefix)] == [10]


def test_a_dead_segment_with_a_hard_link_stays(compiled: Compile, prefix: str) -> None:
    with dead(compiled, prefix, 10) as (file,):
        (SHM / f"link-{file}").hardlink_to(SHM / file)
        newcomer(compiled)
        (SHM / f"link-{file}").unlink()
        assert (find(prefix), records(prefix)) == ([file], [])


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give a file away")
def test_a_dead_segment_of_another_user_stays(compiled: Compile, prefix: str) -> None:
    with dead(compiled, prefix, 10) as (file,):
        os.chown(SHM / file, 65534, 65534)
        newcomer(compiled)
        assert (SHM / file).exists()
        assert records(prefix) == []


def test_a_segment_whose_pid_may_not_be_signalled_stays(compiled: Compile, prefix: str, nobody: list[str]) -> None:
    binary = program(compiled, "removed", *GREEDY)
    with dead(compiled, prefix, 10) as (file,):
        with (SHM / file).open("r+b", buffering=0) as opened:
            page = bytearray(os.pread(opened.fileno(), forge.PAGE, 0))
            forge.put(page, "header", {"pid": 1})
            os.pwrite(opened.fileno(), forge.seal(page), 0)
        os.chown(SHM / file, 65534, 65534)
        with native(Path(nobody[0]), *nobody[1:], os.fspath(binary), "0", "none", "1") as process:
            process.paused()
            assert (SHM / file).exists()
            assert process.end() == 0


@pytest.mark.parametrize(("name", "left"), [("a" * 95, False), ("b" * 96, True)])
def test_a_file_with_an_overlong_name_stays(compiled: Compile, prefix: str, name: str, left: bool) -> None:
    with dead(compiled, prefix, 10) as (file,):
        named = prefix + name[len(prefix) :]
        (SHM / file).replace(SHM / named)
        newcomer(compiled)
        assert (SHM / named).exists() == left
        (SHM / named).unlink(missing_ok=True)


# Opens a file several times, and locks it as the worker of this file does. Then executes another program, which
# inherits the descriptors.
OPENED = """
import fcntl, os, sys
path, times, *command = sys.argv[1:]
for _ in range(int(times)): os.set_inheritable(last := os.open(path, os.O_RDWR), True)
fcntl.lockf(last, fcntl.LOCK_EX, 1)
os.execv(command[0], command)
"""


def come_with_open(compiled: Compile, path: Path, times: int) -> None:
    """Start a worker in a process that has this file of /dev/shm open several times."""
    command = (os.fspath(path), str(times), os.fspath(program(compiled, "removed", *GREEDY)), "0", "none", "1")
    with native(Path(sys.executable), "-S", "-c", OPENED, *command) as process:
        process.paused()
        assert process.end() == 0


def test_a_segment_that_this_process_has_open_stays(compiled: Compile, prefix: str) -> None:
    with dead(compiled, prefix, 10, 20) as (file, _):
        come_with_open(compiled, SHM / file, 1)
        assert find(prefix) == [file]


@pytest.mark.parametrize(("times", "left"), [(64, 0), pytest.param(65, 1, marks=pytest.mark.ci)])
def test_with_too_many_open_files_nothing_is_removed(compiled: Compile, prefix: str, times: int, left: int) -> None:
    with dead(compiled, prefix, 10):
        (SHM / f"other-{prefix}").touch(0o600)
        come_with_open(compiled, SHM / f"other-{prefix}", times)
        (SHM / f"other-{prefix}").unlink()
        assert len(find(prefix)) == left


@needs_namespaces
def test_where_open_files_are_unknown_nothing_is_removed(compiled: Compile, prefix: str) -> None:
    with dead(compiled, prefix, 10) as (file,):
        command = ("-m", "sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "sh")
        binary = os.fspath(program(compiled, "removed", *GREEDY))
        with native(Path("unshare"), *command, binary, "0", "none", "1") as process:
            process.paused()
            assert process.end() == 0
        assert find(prefix) == [file]


def test_files_open_outside_of_dev_shm_do_not_matter(compiled: Compile, prefix: str, tmp_path: Path) -> None:
    (tmp_path / "other").touch()
    if (tmp_path / "other").stat().st_dev == SHM.stat().st_dev:
        pytest.skip("temporary files are in /dev/shm")
    with dead(compiled, prefix, 10):
        come_with_open(compiled, tmp_path / "other", 65)
        assert find(prefix) == []
