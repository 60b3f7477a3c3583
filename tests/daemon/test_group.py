"""A daemon of one user, members of a group, and outsiders: members can only read, through the API."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import SHM, Worker, another_user
from faults import Start
from rounds import ROUNDS, STARTS, again, closed
from running import Running, running
from serving import ask

from brickd.base.paths import runtime

pytestmark = pytest.mark.slow  # slow, because these tests need several users

GROUP = 61000
OUT = "OUT"
OWNER, MEMBER, OUTSIDER = 61001, 61002, 61003


def verb(uid: int, *arguments: str, member: bool = True) -> subprocess.CompletedProcess[str]:
    """Run a verb as another user, who is a member of the group or not."""
    command = [*another_user(uid, *([GROUP] if member else [])), sys.executable, "-P", "-m", "brickd", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def status(uid: int) -> dict[str, Any]:
    """Return the status that a user sees."""
    done = verb(uid, "status", "--json")
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


@pytest.fixture
def daemon(prefix: str) -> Iterator[Running]:
    """Start the owner's daemon, which answers members of the group."""
    os.chown(runtime().directory, OWNER, OWNER)
    with running(another_user(OWNER, GROUP), BRICKD_GROUP=str(GROUP)) as one:
        yield one


def server(worker: Start) -> Worker:
    """Start a worker of the owner's server; its environment also names the group."""
    before = tuple(another_user(OWNER, GROUP))
    return worker(f"{ROUNDS}\nrounds()", before=before, BRICKD_SERVICE="api", BRICKD_GROUP=str(GROUP))


def test_a_group_member_can_use_the_api_and_an_outsider_cannot(daemon: Running, worker: Start) -> None:
    one = server(worker)
    one.next_report()
    closed(daemon, STARTS)
    again(one)
    closed(daemon, 2 * STARTS)
    seen = status(MEMBER)
    assert (seen["source"], seen["ledger"]["spans"]["summarized"]) == ("daemon", 2 * STARTS)

    outside = verb(OUTSIDER, "status", "--json", member=False)
    document = json.loads(outside.stdout)
    assert (outside.returncode, document["source"], document["workers"]) == (0, "shared memory", [])
    assert f"the daemon at {runtime().socket} does not accept user " in outside.stderr
    assert f"#{OWNER} has 1 segment" in outside.stderr
    assert verb(OUTSIDER, "down", member=False).returncode == 5


@pytest.mark.parametrize(
    "arguments",
    [
        ("set", "api", "--spans", "on"),
        ("weights", "--rescan", "api"),
        ("record", "--duration", "0.05", "-o", OUT),
        ("down",),
    ],
)
def test_a_group_member_cannot_change_settings(daemon: Running, worker: Start, arguments: tuple[str, ...]) -> None:
    one = server(worker)
    one.next_report()
    closed(daemon, STARTS)
    out = f"/tmp/{runtime().directory.name}.brick"  # a folder in which any user may create a file
    refused = verb(MEMBER, *(out if word == OUT else word for word in arguments))
    assert (refused.returncode, refused.stdout) == (5, ""), refused.stderr
    assert not Path(out).exists()
    again(one)
    assert closed(daemon, 2 * STARTS)["workers"][0]["set"] == status(MEMBER)["workers"][0]["set"]


def test_a_group_member_cannot_fetch_a_recording(daemon: Running, worker: Start) -> None:
    server(worker).next_report()
    closed(daemon, STARTS)
    reported = ask(runtime().socket, "/v1/record", b"duration=0.01").body
    stored = json.loads(reported.partition(b"event: done\ndata: ")[2].splitlines()[0])["recording"]
    out = Path(f"/tmp/{runtime().directory.name}.brick")
    refused = verb(MEMBER, "record", "--fetch", stored, "-o", os.fspath(out))
    assert (refused.returncode, out.exists()) == (2, False)
    assert "GET /v1/record/file is permitted only to user" in refused.stderr


def test_root_can_change_settings(daemon: Running, worker: Start) -> None:
    server(worker).next_report()
    closed(daemon, STARTS)
    done = subprocess.run(
        [sys.executable, "-P", "-m", "brickd", "set", "api", "--spans", "on"], capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr


# Attacks that a member of the group could make with a descriptor of a segment. Each of them stopped a drain or killed a
# server in earlier versions.
ATTACKS = """
import fcntl, os, sys
for flags in (os.O_RDONLY, os.O_WRONLY, os.O_RDWR):
    try:
        os.open(sys.argv[1], flags)
    except PermissionError:
        continue
    sys.exit(f"opened with {flags}")
try:
    os.truncate(sys.argv[1], 0)
except PermissionError:
    sys.exit(0)
sys.exit("truncated")
"""


def test_a_segment_is_readable_by_its_user_only_whatever_the_servers_group(worker: Start, prefix: str) -> None:
    one = server(worker)
    file = SHM / one.next_report()
    found = file.stat()
    assert (stat.S_IMODE(found.st_mode), found.st_uid) == (0o600, OWNER)
    tried = subprocess.run([*another_user(MEMBER, GROUP), sys.executable, "-c", ATTACKS, file], check=False)
    assert tried.returncode == 0
    again(one)
    assert one.end() == 0


def test_doctor_reports_a_drained_segment_that_a_group_may_open(daemon: Running, worker: Start) -> None:
    one = server(worker)
    file = SHM / one.next_report()
    os.chown(file, -1, GROUP)
    file.chmod(0o660)
    closed(daemon, STARTS)
    again(one)
    closed(daemon, 2 * STARTS)
    findings = json.loads(verb(OWNER, "doctor", "--json").stdout)["findings"]
    (found,) = [each for each in findings if each["name"] == "segments-mode"]
    assert (found["state"], found["seen"], found["fix"]) == ("advice", file.name, f"chmod 600 {file}")


def test_doctor_accepts_an_answering_daemon_of_another_user(daemon: Running) -> None:
    def findings(uid: int, *, member: bool) -> dict[str, tuple[str, str]]:
        done = verb(uid, "doctor", "--json", member=member)
        return {each["name"]: (each["state"], each["seen"]) for each in json.loads(done.stdout)["findings"]}

    assert findings(OWNER, member=True)["daemon"] == ("ok", f"process {daemon.pid} answers")
    reported = findings(MEMBER, member=True)
    assert reported["daemon"] == ("ok", f"process {daemon.pid} answers")
    assert reported["daemon-directory"] == (
        "ok",
        f"{runtime().directory} belongs to user {OWNER}, whose daemon answers",
    )
    assert findings(OUTSIDER, member=False)["daemon-directory"][0] == "broken"
