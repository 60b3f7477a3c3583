"""Files that other users of the machine put next to segments change nothing for this user."""

from __future__ import annotations

import fcntl
import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import sparse_files
from conftest import SHM, reading
from faults import Start
from forge import PAGE, placed, put, seal, with_header
from running import running
from serving import ask
from verbs import SPANS, brickd, document, started

from brickd.base.paths import runtime
from brickd.errors import NotPermitted, SegmentRefused
from brickd.shm.removed_workers import WorkerCounts
from brickd.shm.segment import open_segment
from brickd.shm.segment_files import find, listing, open_file
from brickd.state.checkpoint import encode, save
from brickd.state.daemon_state import Memory

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of other users")

STRANGER = 65534


def foreign_file(file: Path, image: bytes = b"x\n", mode: int = 0o666, uid: int = STRANGER) -> Path:
    """Create a file of another user; the file gets its name only when its content is complete."""
    draft = SHM / f".{file.name}"
    placed(draft.name, image)
    return given_away(draft, file, mode, uid)


def given_away(draft: Path, file: Path, mode: int = 0o666, uid: int = STRANGER) -> Path:
    draft.chmod(mode)
    os.chown(draft, uid, uid)
    return draft.rename(file)


@contextmanager
def lock_holder(file: Path) -> Iterator[None]:
    """Start a process of another user that holds the worker's lock on a segment."""
    with file.open("r+b") as held:
        fcntl.lockf(held, fcntl.LOCK_EX, 1, 0)
        yield


def foreign_copy(file: Path, name: str, **header: object) -> Path:
    """Create a copy of a segment that belongs to another user, with other values in its header."""
    draft = SHM / f".{file.name}"
    sparse_files.copy(SHM / name, draft)
    with draft.open("r+b", buffering=0) as copied:
        page = bytearray(os.pread(copied.fileno(), PAGE, 0))
        put(page, "header", {"uid": STRANGER, **header})
        copied.write(seal(page))
    return given_away(draft, file)


@pytest.mark.ci
def test_another_users_segment_with_a_workers_uuid_changes_nothing_for_it(worker: Start, prefix: str) -> None:
    started(worker, SPANS, BRICKD_SERVICE="api")
    victim = reading(prefix)
    file = foreign_copy(SHM / f"{prefix}0", victim.file)
    with lock_holder(file), running() as daemon:
        daemon.until("worker_found")
        first = daemon.once("/workers", lambda answer: answer["workers"])
        assert [(each["segment"], each["state"]) for each in first["workers"]] == [(victim.file, "live")]
        file.unlink()
        assert daemon.ask("/status")["problems"] == []
        assert not [each for each in daemon.ask("/events")["events"] if each["kind"] == "quarantined"]


@pytest.mark.parametrize("by_daemon", [False, pytest.param(True, marks=pytest.mark.ci)])
def test_another_users_segment_has_no_name_and_no_vote(worker: Start, prefix: str, by_daemon: bool) -> None:
    started(worker, SPANS, BRICKD_SERVICE="good", BRICKD_WORKER="0")
    foreign_copy(SHM / f"{prefix}7", reading(prefix).file, uuid=os.urandom(16), index=7)
    with lock_holder(SHM / f"{prefix}7"):
        if not by_daemon:
            assert [each["name"] for each in document("workers")["workers"]] == ["good/0"]
            assert brickd("status", "--check").returncode == 0
            assert brickd("inspect", "good/7").returncode == 4
            return
        with running() as daemon:
            daemon.until("worker_found")
            assert [each["name"] for each in daemon.ask("/workers")["workers"]] == ["good/0"]
            assert brickd("status", "--check").returncode == 0
            found = [each for each in daemon.ask("/events")["events"] if each["kind"] == "worker_found"]
            assert [each["worker"] for each in found] == ["good/0"]


@pytest.mark.ci
@pytest.mark.parametrize("by_daemon", [False, True])
def test_another_users_junk_changes_no_exit_code_and_no_output(worker: Start, prefix: str, by_daemon: bool) -> None:
    started(worker)

    def messages() -> list[tuple[int, str]]:
        ended = [brickd(*words) for words in (("status", "--check"), ("workers",), ("doctor",), ("prune", "--dry-run"))]
        return [(each.returncode, each.stderr) for each in ended]

    before = messages()
    foreign_file(SHM / f"{prefix}junk")
    os.symlink("/etc/passwd", SHM / f"{prefix}link")
    os.chown(SHM / f"{prefix}link", STRANGER, STRANGER, follow_symlinks=False)
    os.mkfifo(SHM / f"{prefix}fifo")
    os.chown(SHM / f"{prefix}fifo", STRANGER, STRANGER)
    if not by_daemon:
        assert messages() == before
        return
    with running() as daemon:
        daemon.until("worker_found")
        assert brickd("status", "--check").returncode == 0
        assert daemon.ask("/status")["problems"] == []


@pytest.mark.ci
def test_with_only_another_users_segments_every_verb_names_the_user_and_the_command(prefix: str) -> None:
    for number in range(3):
        foreign_file(SHM / f"{prefix}{number}", with_header(uid=4321, uuid=os.urandom(16)), uid=4321)
    foreign_file(SHM / f"{prefix}junk", uid=1234)
    reported = "user root has no segments here, and brickd reads only the segments of the user who runs it; "
    reported += "#4321 has 3 segments, "
    for verb in ("status", "workers", "bricks", "tree"):
        ended = brickd(verb)
        assert ended.returncode == 0
        assert reported in ended.stderr
        assert ended.stderr.endswith("(sudo -u '#4321' brickd status)\n")
    named = brickd("status", "api")
    assert (named.returncode, reported in named.stderr) == (4, True)
    inspected = brickd("inspect")
    assert (inspected.returncode, reported in inspected.stderr) == (4, True)
    assert brickd("status", "--check", "--allow-empty").returncode == 0
    (finding,) = [each for each in json.loads(brickd("doctor", "--json").stdout)["findings"]
                  if each["name"] == "segments-foreign"]  # fmt: skip
    assert finding["state"] == "ok"
    assert "#4321 has 3" in finding["seen"]


@pytest.mark.ci
def test_doctor_reports_an_own_segment_that_a_group_may_read(worker: Start, prefix: str) -> None:
    started(worker)
    file = SHM / reading(prefix).file

    def found() -> tuple[str, list[str]]:
        (one,) = [each for each in json.loads(brickd("doctor", "--json").stdout)["findings"]
                  if each["name"] == "segments-mode"]  # fmt: skip
        return one["state"], one["about"]

    assert found() == ("ok", [])
    file.chmod(0o640)
    assert found() == ("advice", [file.name])


def test_files_of_other_users_are_counted_by_owner_and_never_opened(prefix: str) -> None:
    own = SHM / f"{prefix}own"
    own.write_bytes(b"")
    for number in range(2):
        foreign_file(SHM / f"{prefix}{number}", uid=4321)
    foreign_file(SHM / f"{prefix}2")
    found = listing(prefix)
    assert (found.own, found.counts()) == ([own.name], {4321: 2, STRANGER: 1})
    assert listing(prefix, found.others) == found
    assert find(prefix) == [own.name]
    with pytest.raises(NotPermitted, match=r"belongs to user #4321; brickd reads only the segments of user root"):
        open_file(f"{prefix}0")


@pytest.mark.ci
@pytest.mark.parametrize(("kind", "uid"), [("a file", STRANGER), ("a FIFO", STRANGER), ("a FIFO", 0)])
def test_another_users_checkpoint_is_ignored(prefix: str, kind: str, uid: int) -> None:
    memory = Memory(prefix)
    memory.removed.add("theirs", False, 3, WorkerCounts(spans=1_000))
    path = runtime().checkpoint
    if kind == "a FIFO":
        os.mkfifo(path)
    else:
        save(path, encode(memory))
    os.chown(path, uid, uid)
    status = document("status")
    assert (status["ledger"]["spans"]["removed"], status["problems"]) == (0, [])
    ended = brickd("status", "--check", "--allow-empty")
    assert ended.returncode == 0
    assert f"{path}: " in ended.stderr
    with running() as daemon:
        assert daemon.ask("/status")["ledger"]["spans"]["removed"] == 0


def test_an_own_file_with_a_reused_inode_number_is_accepted(prefix: str) -> None:
    file = foreign_file(SHM / f"{prefix}0")
    known = listing(prefix).others
    # The test acts as if /dev/shm were not a tmpfs: other file systems give the inode number of a removed file to the
    # next file.
    file = file.rename(SHM / f"{prefix}own")
    os.chown(file, os.geteuid(), -1)
    assert listing(prefix, known).own == [file.name]


def test_ownership_of_a_file_is_judged_by_the_effective_user(prefix: str) -> None:
    placed(f"{prefix}0", b"")
    os.seteuid(STRANGER)
    try:
        placed(f"{prefix}1", b"")
        assert listing(prefix) == ([f"{prefix}1"], listing(prefix).others)
        assert listing(prefix).counts() == {0: 1}
        open_file(f"{prefix}1").close()
        with pytest.raises(NotPermitted):
            open_file(f"{prefix}0")
    finally:
        os.seteuid(0)


def test_unlink_without_permission_is_refused_and_keeps_the_file(prefix: str) -> None:
    placed(f"{prefix}0", b"")
    with open_file(f"{prefix}0") as file:
        os.seteuid(STRANGER)
        try:
            with pytest.raises(NotPermitted, match=f"{prefix}0: cannot be removed: Permission denied"):
                file.unlink()
        finally:
            os.seteuid(0)
        assert (SHM / file.name).exists()


KEYED = """
brick.source("int main;", name="gemm")
brick.checksum("gemm", bytearray(64), layer=0, input=bytearray(64))
with brick.span("b"): pass
pause()
"""


@pytest.mark.ci
def test_every_file_and_socket_is_private_to_its_user_under_any_umask(worker: Start, prefix: str) -> None:
    without_umask = ("sh", "-c", 'umask 0; exec "$@"', "sh")
    worker(KEYED, before=without_umask, BRICKD_SERVICE="api").paused()
    places = runtime()
    with running(without_umask) as daemon:
        daemon.until("worker_found")
        assert ask(places.socket, "/v1/record", b"duration=0.01").status == 200
        daemon.once("/source", lambda answer: answer["sources"])
        paths = [*SHM.glob(f"{prefix}*"), *places.directory.rglob("*"), *places.state.rglob("*")]
        names = {path.name for path in paths}
        assert {"lock", "checkpoint", "socket", "key", "recordings", "sources"} <= names
        for path in paths:
            mode = stat.S_IMODE(path.lstat().st_mode)
            assert mode == (0o700 if path.is_dir() else 0o600), f"{path} has mode {mode:o}"


def test_root_reads_no_segment_of_another_user_though_it_could(prefix: str) -> None:
    file = foreign_file(SHM / f"{prefix}0", with_header(uid=4321), mode=0o600, uid=4321)
    with pytest.raises(NotPermitted):
        open_segment(file.name)
    ended = brickd("inspect", file.name)
    assert (ended.returncode, "#4321 has 1 segment" in ended.stderr) == (4, True)


def test_a_segment_named_for_another_user_is_refused(prefix: str) -> None:
    placed(f"{prefix}0", with_header(uid=4321))
    with pytest.raises(SegmentRefused, match="names user 4321 as its creator, but user 0 owns it"):
        open_segment(f"{prefix}0")
