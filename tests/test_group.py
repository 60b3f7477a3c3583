"""Servers of one user, a daemon of another, clients of a third: what BRICKD_GROUP lets them do, and nobody else."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from conftest import SHM, Worker, another_user
from faults import Start
from rounds import ROUNDS, STARTS, again, closed
from running import Running, running

from brickd.files import find
from brickd.runtime import runtime

pytestmark = pytest.mark.slow  # users come and go

GROUP = 61000
SERVER, DAEMON, CLIENT, OUTSIDER = 61001, 61002, 61003, 61004


def verb(uid: int, *arguments: str, member: bool = True, **environment: str) -> subprocess.CompletedProcess[str]:
    """A verb that a user runs, who is a member of the group or is not."""
    command = [*another_user(uid, *([GROUP] if member else [])), sys.executable, "-P", "-m", "brickd", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ | environment, check=False)


def status(uid: int, *arguments: str, member: bool = True, **environment: str) -> dict[str, Any]:
    """What a user is shown."""
    done = verb(uid, "status", "--json", *arguments, member=member, **environment)
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


@pytest.fixture
def daemon(prefix: str) -> Iterator[Running]:
    """That of a member of the group."""
    os.chown(runtime().directory, DAEMON, DAEMON)
    with running(another_user(DAEMON, GROUP), BRICKD_GROUP=str(GROUP)) as one:
        yield one


def server(worker: Start) -> Worker:
    """A worker of a server whose user gave its segments to the group."""
    before = tuple(another_user(SERVER, GROUP))
    return worker(f"{ROUNDS}\nrounds()", before=before, BRICKD_SERVICE="api", BRICKD_GROUP=str(GROUP))


def test_the_daemon_of_a_group_drains_its_members_servers_and_answers_its_members_alone(
    daemon: Running, worker: Start, prefix: str
) -> None:
    one = server(worker)
    segment = (SHM / one.heard()).stat()
    assert (stat.S_IMODE(segment.st_mode), segment.st_uid, segment.st_gid) == (0o660, SERVER, GROUP)
    closed(daemon, STARTS)
    again(one)
    closed(daemon, 2 * STARTS)

    seen = status(CLIENT)
    assert seen["source"] == "daemon"
    assert seen["ledger"]["spans"]["summarized"] == 2 * STARTS
    assert status(CLIENT, BRICKD_SOCKET="/nowhere")["source"] == "shared memory", "the segment itself is the group's"

    refused = verb(OUTSIDER, "status", member=False)
    assert (refused.returncode, refused.stdout) == (5, "")
    assert "1 segment of other users may not be read" in refused.stderr
    assert verb(OUTSIDER, "down", member=False).returncode == 5


@pytest.fixture
def homes() -> Iterator[Callable[[int], Path]]:
    """Gives a user a folder of its own."""
    with TemporaryDirectory() as above:
        Path(above).chmod(0o755)

        def home(uid: int) -> Path:
            folder = Path(above, str(uid))
            folder.mkdir(mode=0o700)
            os.chown(folder, uid, uid)
            return folder

        yield home


def test_a_member_has_what_it_recorded_though_the_daemons_files_are_not_its_own(
    daemon: Running, worker: Start, prefix: str, homes: Callable[[int], Path]
) -> None:
    server(worker).heard()
    closed(daemon, STARTS)
    file = homes(CLIENT) / "run.brick"
    done = verb(CLIENT, "record", "--json", "-o", os.fspath(file), "--duration", "0.05")
    assert (done.returncode, done.stderr.count("\n")) == (0, 1), done.stderr
    assert [each["path"] for each in json.loads(done.stdout)["files"]] == [os.fspath(file)]
    assert (stat.S_IMODE(file.stat().st_mode), file.stat().st_uid) == (0o600, CLIENT)
    assert list(runtime().recordings.iterdir()) == []
    assert status(CLIENT, os.fspath(file))["ledger"]["spans"]["summarized"] == STARTS


def test_who_may_not_ask_the_daemon_may_not_record(daemon: Running, homes: Callable[[int], Path]) -> None:
    file = homes(OUTSIDER) / "run.brick"
    for arguments in (("--duration", "0.05"), ("--fetch", "0" * 32)):
        refused = verb(OUTSIDER, "record", "-o", os.fspath(file), *arguments, member=False)
        told = f"brickd: the daemon at {runtime().socket} is not yours to ask\n"
        assert (refused.returncode, refused.stdout, refused.stderr) == (5, "", told)
        assert not file.exists()
    assert not runtime().recordings.exists()


def test_what_the_group_was_not_given_is_counted_and_left_alone(daemon: Running, worker: Start, prefix: str) -> None:
    private = worker(f"{ROUNDS}\nrounds()", before=tuple(another_user(OUTSIDER, GROUP)))
    file = private.heard()
    before = (SHM / file).stat()
    assert stat.S_IMODE(before.st_mode) == 0o600
    asked = verb(CLIENT, "status")
    assert asked.returncode == 5
    assert "1 segment of other users may not be read" in asked.stderr
    assert (SHM / file).stat() == before
    assert private.end() == 0


def test_a_dead_servers_segment_is_remembered_and_left_to_whoever_may_remove_it(
    daemon: Running, worker: Start, prefix: str
) -> None:
    one = server(worker)
    one.heard()
    closed(daemon, STARTS)
    one.kill()
    daemon.until("quarantined")
    document = status(CLIENT)
    assert document["ledger"]["spans"]["summarized"] == STARTS
    left, died = document["problems"]
    assert "its worker ended and is remembered; only user 61001 may remove it" in left["text"]
    assert (left["command"], died["command"]) == (f"sudo -u '#{SERVER}' brickd prune", "brickd prune")

    done = verb(SERVER, "prune", "--json")
    assert done.returncode == 0, done.stderr
    pruned = json.loads(done.stdout)
    assert [len(pruned["removed"]), pruned["forgotten"]] == [1, 1]
    assert find(prefix) == []
    assert status(CLIENT)["problems"] == []


def test_the_doctor_finds_nothing_wrong_with_a_daemon_of_another_user_that_answers(daemon: Running) -> None:
    def findings(uid: int, *, member: bool) -> dict[str, tuple[str, str]]:
        done = verb(uid, "doctor", "--json", member=member)
        return {each["name"]: (each["state"], each["seen"]) for each in json.loads(done.stdout)["findings"]}

    assert findings(DAEMON, member=True)["daemon"] == ("ok", f"process {daemon.pid} answers")
    told = findings(CLIENT, member=True)
    assert told["daemon"] == ("ok", f"process {daemon.pid} answers")
    assert told["daemon-directory"] == ("ok", f"{runtime().directory} of user {DAEMON}, whose daemon answers us")
    assert findings(OUTSIDER, member=False)["daemon-directory"][0] == "broken"
