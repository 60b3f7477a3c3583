"""Clients of the API that are slow, silent, too many or not permitted affect only themselves."""

from __future__ import annotations

import os
import select
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from faults import Start
from running import running
from serving import Daemon, answer, ask, connected, following, request, rest, serving
from verbs import started

from brickd.api.connection_limits import Limits
from brickd.api.peer_credentials import Role, peer
from brickd.base.paths import runtime

INDEX = request("/v1")
PATIENT = 3600.0


@pytest.fixture
def path(prefix: str, tmp_path: Path) -> Path:
    return tmp_path / "socket"


def closed(client: socket.socket, milliseconds: int | None = None) -> bool:
    """Wait until the other end is closed; return whether it is closed.

    With a time, wait no longer than this time.
    """
    poll = select.poll()
    poll.register(client, select.POLLHUP)
    return bool(poll.poll(milliseconds))


def large(daemon: Daemon) -> int:
    """Add more events than any socket buffer can hold; return the number of bytes that they have at least."""
    for _ in range(100):
        daemon.events.add("large", 50_000 * "x")
    return 100 * 50_000


def test_fifty_silent_clients_do_not_delay_the_next_one(path: Path) -> None:
    limits = Limits(connections=10, backlog=4, arrive_seconds=PATIENT)
    with serving(path, limits), ExitStack() as clients:
        silent = []
        for beginning in 25 * [b"", INDEX[:20]]:
            silent.append(clients.enter_context(connected(path)))
            silent[-1].sendall(beginning)
        assert ask(path, "/v1").status == 200
        assert all(closed(client) for client in silent[:41])
        assert not any(closed(client, 0) for client in silent[41:]), (
            "the clients that were silent for longest are closed first"
        )


@pytest.mark.ci
def test_clients_that_sent_a_request_do_not_count_as_silent(path: Path) -> None:
    with serving(path, Limits(arrive_seconds=PATIENT)), ExitStack() as clients:
        for _ in range(90):
            clients.enter_context(connected(path))
        asking = [clients.enter_context(connected(path)) for _ in range(60)]
        for client in asking:
            client.sendall(INDEX)
        assert [answer(rest(client)).status for client in asking] == 60 * [200]


@pytest.mark.ci
def test_fifty_clients_that_do_not_read_do_not_delay_the_next_one(path: Path) -> None:
    limits = Limits(connections=10, backlog=4, streams=100, take_seconds=PATIENT)
    with serving(path, limits) as daemon, ExitStack() as clients:
        large(daemon)
        deaf = []
        for target in 25 * ["/v1/events", "/v1/events/stream"]:
            deaf.append(clients.enter_context(connected(path)))
            deaf[-1].sendall(request(target))
            deaf[-1].recv(1)
        assert ask(path, "/v1").status == 200
        assert sum(closed(client, 0) for client in deaf) >= 40


@pytest.mark.ci
@pytest.mark.parametrize("target", ["/v1/events", "/v1/events/stream"])
def test_a_client_that_does_not_read_has_a_bounded_buffer_and_is_dropped(path: Path, target: str) -> None:
    with serving(path, Limits(take_seconds=0.2)) as daemon, connected(path) as client:
        whole = large(daemon)
        client.sendall(request(target))
        most = 0
        while not closed(client, 1):
            waiting = [each.transport.get_write_buffer_size() for each in tuple(daemon.server._room._taken)]
            most = max(most, *waiting, 0)
        assert 0 < most <= 3 * 64 * 1024
        assert len(rest(client)) < whole / 5
        assert ask(path, "/v1").status == 200


@pytest.mark.ci
def test_a_client_that_sends_the_end_of_its_request_instead_of_reading_is_dropped(path: Path) -> None:
    with serving(path, Limits(take_seconds=0.2)) as daemon, connected(path) as client:
        large(daemon)
        client.sendall(request("/v1/events", None, "Content-Length: 1"))
        client.recv(1)
        (connection,) = daemon.server._room._taken
        while not connection.flow.write_paused:
            pass
        client.sendall(b"x")
        assert closed(client, 10_000)


@pytest.mark.slow
def test_a_slow_client_that_catches_up_gets_a_new_time_limit(path: Path) -> None:
    with serving(path, Limits(take_seconds=0.5)) as daemon:
        large(daemon)
        with following(path, "/v1/events/stream") as stream:
            for _ in range(100):
                next(stream)
            with connected(path) as watch:
                # A client must read an answer within 0.5 s. This client has no answer to read, so the limit does not
                # apply.
                assert not closed(watch, 700)
            daemon.events.add("small", "")
            assert next(stream)[1]["kind"] == "small"


@pytest.mark.ci
def test_a_slow_reader_of_a_stream_gets_the_number_of_missed_events(path: Path) -> None:
    with serving(path) as daemon:
        daemon.events.add("first", "")
        with following(path, "/v1/events/stream") as stream:
            assert next(stream)[1]["number"] == 1
            for _ in range(4_000):
                daemon.events.add("many", 1_000 * "x")
            result, missed = [1], 0
            while result[-1] < 4_001:
                name, reported = next(stream)
                if name == "missed":
                    missed += reported["missed"]
                else:
                    result.append(reported["number"])
        assert missed > 1_000
        assert missed + len(result) == 4_001
        assert result == sorted(result)


@pytest.mark.parametrize("beginning", [b"", INDEX[:10], request("/v1/set", b"x" * 9)[:-1]])
def test_a_request_that_does_not_arrive_in_time_is_refused(
    path: Path, beginning: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    with serving(path, Limits(arrive_seconds=0.1)), connected(path) as client:
        client.sendall(beginning)
        assert rest(client) == b""
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("beginning", [b"", INDEX[:10]])
def test_a_daemon_that_ends_does_not_wait_for_incomplete_requests(path: Path, beginning: bytes) -> None:
    with serving(path, Limits(arrive_seconds=PATIENT, farewell_seconds=3600)) as daemon, connected(path) as client:
        client.sendall(beginning)
        assert ask(path, "/v1").status == 200  # this client is accepted after the other
        daemon.server.stop()
        assert closed(client, 10_000)


def test_an_answer_may_take_longer_than_the_time_limit_of_its_request(worker: Start, path: Path) -> None:
    started(worker)
    with serving(path, Limits(arrive_seconds=0.1)):
        assert ask(path, "/v1/hang?watch=0.3").status == 200


def test_a_request_that_arrives_byte_by_byte_has_the_same_time_limit(path: Path) -> None:
    with serving(path, Limits(arrive_seconds=0.1)), connected(path) as client:
        with suppress(BrokenPipeError):  # the daemon may close the connection between a check and the next byte
            for byte in request("/v1", None, f"x: {9_000 * 'y'}"):
                if closed(client, 5):
                    break
                client.send(bytes([byte]))
        assert rest(client) == b""


def test_a_second_request_on_a_connection_is_not_answered(path: Path) -> None:
    with serving(path), connected(path) as client:
        client.sendall(INDEX + INDEX)
        reported = rest(client)
        assert reported.count(b"HTTP/1.1 ") == 1
        assert answer(reported).headers["connection"] == "close"


def test_a_stream_above_the_limit_is_refused(path: Path) -> None:
    with serving(path, Limits(streams=2)) as daemon, ExitStack() as streams:
        daemon.events.add("tried", "")
        for _ in range(2):
            next(streams.enter_context(following(path, "/v1/events/stream")))
        refused = ask(path, "/v1/status/stream")
        assert (refused.status, refused.document["error"]["kind"]) == (429, "busy")
        streams.close()
        eventually(lambda: answered(path, "/v1/events/stream") == 200)


def answered(path: Path, target: str) -> int:
    """Return the status of an answer whose body may never end."""
    with connected(path) as client:
        client.sendall(request(target))
        return int(client.recv(12)[9:])


@pytest.mark.ci
def test_clients_leave_no_descriptor_behind(path: Path) -> None:
    with serving(path, Limits(connections=10, backlog=4, arrive_seconds=PATIENT)) as daemon:
        daemon.events.add("tried", "")
        ask(path, "/v1")
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(30):
            with connected(path) as silent, following(path, "/v1/events/stream") as stream:
                silent.send(b"GET")
                next(stream)
                ask(path, "/v1")
        eventually(lambda: ask(path, "/v1").status == 200 and len(os.listdir("/proc/self/fd")) <= before)


def eventually(holds: Callable[[], bool]) -> None:
    """Wait until the daemon has noticed that a client is gone."""
    assert any(holds() for _ in range(1_000))


PACED = """
import time
brick.init()
pause()
b = brick.brick("b")
for _ in range(200):
    for _ in range(100):
        with b: pass
    time.sleep(0.002)
pause()
"""


@pytest.mark.slow
def test_fifty_slow_clients_do_not_delay_draining(worker: Start) -> None:
    process = started(worker, PACED, BRICKD_SERVICE="api")
    with running() as daemon, ExitStack() as clients:
        daemon.ask("/set", b"service=api&spans=on")
        for target in 25 * ["/v1/status/stream?seconds=0.1", None]:
            clients.enter_context(connected(runtime().socket)).sendall(request(target) if target else INDEX[:9])
        process.go()
        process.paused()
        (reported,) = daemon.ask("/workers")["workers"]
    details = reported["ledger"]["details"]
    assert details["consumed"] + details["in_ring"] == 20_000
    assert (details["dropped"], details["lost_with_daemon"]) == ({}, 0)


# ---- users who may send requests

STRANGER = """
import socket, sys
client = socket.socket(socket.AF_UNIX)
try:
    client.connect(sys.argv[1])
except PermissionError:
    sys.exit("kept out")
client.sendall(f"{sys.argv[2]} HTTP/1.1\\r\\nhost: brickd\\r\\n\\r\\n".encode())
sys.stdout.write(b"".join(iter(lambda: client.recv(65536), b"")).decode())
"""


@pytest.fixture
def open_folder(prefix: str) -> Iterator[Path]:
    """Create a folder that every user may enter; TMPDIR may be closed to other users."""
    folder = Path(tempfile.mkdtemp(prefix="brickd-test-", dir="/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def stranger(path: Path, *identity: str, asks: str = "GET /v1/status") -> subprocess.CompletedProcess[bytes]:
    """Return the answer that another user gets."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("needs root and setpriv, to be another user")
    command = ["setpriv", "--reuid=65534", *identity, sys.executable, "-S", "-c", STRANGER, str(path), asks]
    return subprocess.run(command, capture_output=True, check=False)


@pytest.mark.ci
def test_the_mode_of_the_socket_blocks_another_user(open_folder: Path) -> None:
    with serving(open_folder / "socket"):
        assert stranger(open_folder / "socket", "--regid=65534", "--clear-groups").stderr == b"kept out\n"


def test_another_user_is_refused_even_if_the_mode_permits_it(open_folder: Path) -> None:
    with serving(open_folder / "socket", group=4321):
        (open_folder / "socket").chmod(0o666)
        refused = answer(stranger(open_folder / "socket", "--regid=65534", "--groups=7").stdout)
    assert (refused.status, refused.document["error"]["kind"]) == (403, "stranger")


@pytest.mark.parametrize(
    "identity",
    [("--regid=4321", "--clear-groups"), pytest.param(("--regid=65534", "--groups=7,4321"), marks=pytest.mark.ci)],
)
def test_a_member_of_the_group_is_answered(open_folder: Path, identity: tuple[str, ...]) -> None:
    with serving(open_folder / "socket", group=4321):
        assert answer(stranger(open_folder / "socket", *identity).stdout).status == 200


# Requests that are forbidden to members of the group. These are all requests that change something, and all requests
# for recordings, because recordings contain customers' data.
CONTROL = {
    "POST /v1/canary/run", "POST /v1/set", "POST /v1/silence", "POST /v1/notify/test", "POST /v1/forget",
    "POST /v1/weights/rescan", "POST /v1/down",
    "POST /v1/record", "POST /v1/record/end", "POST /v1/record/remove", "GET /v1/record/file",
}  # fmt: skip
MEMBER = ("--regid=65534", "--groups=4321")


def test_the_index_lists_the_role_that_each_path_needs(open_folder: Path) -> None:
    with serving(open_folder / "socket"):
        listed = ask(open_folder / "socket", "/v1").document["endpoints"]
    roles = {f"{each['method']} {each['path']}": each["role"] for each in listed}
    assert {path for path, role in roles.items() if role == "control"} == CONTROL
    assert set(roles.values()) == {"read", "control"}


@pytest.mark.ci
@pytest.mark.parametrize("path", sorted(CONTROL))
def test_a_member_of_the_group_cannot_change_settings(open_folder: Path, path: str) -> None:
    with serving(open_folder / "socket", group=4321):
        refused = answer(stranger(open_folder / "socket", *MEMBER, asks=path).stdout)
        assert (refused.status, refused.document["error"]["kind"]) == (403, "not_permitted")
        assert "members of the daemon's group may only read" in refused.document["error"]["message"]
        assert ask(open_folder / "socket", "/v1/status").status == 200, "the daemon still answers its user"


# Requests whose answers do not end, and the beginning of each answer.
HOLDS = """
import socket, sys
clients = [socket.socket(socket.AF_UNIX) for _ in range(int(sys.argv[2]))]
statuses = []
for client in clients:
    client.connect(sys.argv[1])
    if sys.argv[3]:
        client.sendall(f"GET {sys.argv[3]} HTTP/1.1\\r\\nhost: brickd\\r\\n\\r\\n".encode())
        statuses.append(client.recv(12)[9:].decode())
for silent in [] if sys.argv[3] else clients[:-10]:
    silent.recv(1)  # until it is closed
print(*statuses, flush=True)
sys.stdin.read()
"""


@contextmanager
def held_by_a_member(path: Path, count: int, target: str = "") -> Iterator[list[str]]:
    """Open connections as a member of the group; yield the status of the answer to each request for `target`.

    Without a target, send no requests, and wait until all connections except the last ten are closed.
    """
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("needs root and setpriv, to be another user")
    command = ["setpriv", "--reuid=65534", *MEMBER, sys.executable, "-S", "-c", HOLDS, str(path), str(count), target]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        yield process.stdout.readline().decode().split()
        process.communicate()


@pytest.mark.ci
def test_group_members_leave_half_of_the_streams_to_the_control_role(open_folder: Path) -> None:
    path = open_folder / "socket"
    with (
        serving(path, Limits(streams=4), group=4321) as daemon,
        held_by_a_member(path, 4, "/v1/status/stream") as reported,
        ExitStack() as streams,
    ):
        assert reported == ["200", "200", "429", "429"]
        daemon.events.add("tried", "")
        for _ in range(2):
            next(streams.enter_context(following(path, "/v1/events/stream")))


@pytest.mark.ci
def test_group_members_never_close_a_control_connection(open_folder: Path) -> None:
    path = open_folder / "socket"
    with serving(path, Limits(connections=10, arrive_seconds=PATIENT), group=4321), connected(path) as client:
        client.sendall(INDEX[:20])
        with held_by_a_member(path, 30):
            client.sendall(INDEX[20:])
            assert answer(rest(client)).status == 200


@pytest.mark.ci
@pytest.mark.parametrize(("held", "stay"), [(5, 5), (6, 5)])
def test_group_members_have_half_of_the_connections(open_folder: Path, held: int, stay: int) -> None:
    path = open_folder / "socket"
    limits = Limits(connections=11, arrive_seconds=PATIENT)
    with serving(path, limits, group=4321) as daemon, held_by_a_member(path, held):
        assert ask(path, "/v1").status == 200  # this client is accepted only after the clients above
        assert len(daemon.server._room._taken) == stay


def test_the_role_of_a_peer_comes_from_its_kernel_credentials() -> None:
    one, other = socket.socketpair()
    with one, other:
        found = peer(one)
        assert (found.pid, found.uid) == (os.getpid(), os.geteuid())
        assert found.groups == {os.getegid(), *os.getgroups()}
        assert found.role(None) == found._replace(uid=0).role(7) == Role.CONTROL
        member = found._replace(uid=4321, groups=frozenset([7]))
        if os.geteuid() == 0:
            os.seteuid(1234)
            try:
                roles = [found._replace(uid=uid).role(None) for uid in (0, 1234, 4321)]
            finally:
                os.seteuid(0)
            assert roles == [Role.CONTROL, Role.CONTROL, Role.NONE]
        assert [member.role(group) for group in (7, 8, None)] == [Role.READ, Role.NONE, Role.NONE]
