"""Messages to a service manager (ready, alive, stopping) are sent only when they are true."""

from __future__ import annotations

import asyncio
import ctypes
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from running import Running, running, until, up
from serving import ask

from brickd.base.paths import runtime
from brickd.daemon.sd_notify import Manager

LATEST_SECONDS = 30


@contextmanager
def notify_socket(address: str) -> Iterator[socket.socket]:
    """Return the manager's end of the socket, at a path or at an abstract address (@)."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind("\0" + address[1:] if address.startswith("@") else address)
        manager.settimeout(LATEST_SECONDS)
        yield manager


def one(manager: socket.socket) -> dict[str, str]:
    """Return the next message."""
    return dict(line.split("=", 1) for line in manager.recv(4096).decode().split("\n"))


def waiting(manager: socket.socket) -> list[bytes]:
    """Return the messages that wait to be received."""
    found = []
    manager.setblocking(False)
    try:
        while True:
            found.append(manager.recv(4096))
    except BlockingIOError:
        manager.settimeout(LATEST_SECONDS)
        return found


# ---- the texts of messages


@pytest.mark.parametrize("kind", ["path", "abstract"])
def test_messages_arrive_at_the_socket_named_in_the_environment(tmp_path: Path, kind: str) -> None:
    address = f"{tmp_path}/notify" if kind == "path" else f"@brickd-test-{os.getpid()}"
    with notify_socket(address) as manager:
        sender = Manager({"NOTIFY_SOCKET": address})
        sender.ready("answers at /a/name\nREADY=0")
        sender.stopping()
        assert one(manager) == {
            "READY": "1",
            "MAINPID": str(os.getpid()),
            "STATUS": "answers at /a/name READY=0",
        }
        assert one(manager)["STOPPING"] == "1"


@pytest.mark.parametrize(
    "address", ["", "/", "@", "relative", "vsock:2:1", "/nowhere/at/all", "/" + 200 * "x", "@gone"]
)
def test_a_missing_or_invalid_socket_is_harmless(address: str) -> None:
    for environment in ({}, {"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "1000"}):
        Manager(environment).ready("answers")
        Manager(environment).stopping()


@pytest.mark.slow  # slow, because the test waits for a limit of one second
def test_a_full_socket_loses_only_the_message(tmp_path: Path) -> None:
    with notify_socket(f"{tmp_path}/notify") as manager:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as full:
            full.setblocking(False)
            with suppress(BlockingIOError):
                while True:
                    full.sendto(b"x", manager.getsockname())
        Manager({"NOTIFY_SOCKET": f"{tmp_path}/notify"}).ready("answers")
        assert set(waiting(manager)) == {b"x"}


@pytest.mark.parametrize(
    ("usec", "pid", "every_ns"),
    [
        ("30000000", None, 15_000_000_000),
        ("30000000", "ours", 15_000_000_000),
        ("30000000", "1", None),
        ("30000000", "", None),
        ("0", None, None),
        ("-1", None, None),
        ("²", None, None),
        ("", None, None),
        (None, None, None),
    ],
)
def test_the_heartbeat_interval_comes_from_the_environment(
    usec: str | None, pid: str | None, every_ns: int | None
) -> None:
    environment = {"NOTIFY_SOCKET": "/run/notify"}
    if usec is not None:
        environment["WATCHDOG_USEC"] = usec
    if pid is not None:
        environment["WATCHDOG_PID"] = str(os.getpid()) if pid == "ours" else pid
    assert Manager(environment).every_ns == every_ns
    assert Manager(environment | {"NOTIFY_SOCKET": ""}).every_ns is None


def test_a_heartbeat_is_sent_only_while_the_loop_runs(tmp_path: Path) -> None:
    calm, stands = 1_000_000_000, 3_000_000_000
    with notify_socket(f"{tmp_path}/notify") as manager:
        stills = iter([calm, calm, stands, stands, calm])
        with pytest.raises(RuntimeError):  # in a coroutine, StopIteration becomes a RuntimeError
            asyncio.run(
                Manager({"NOTIFY_SOCKET": f"{tmp_path}/notify", "WATCHDOG_USEC": "2"}).watch(lambda: next(stills))
            )
        assert waiting(manager) == [b"WATCHDOG=1"] * 3


# ---- a daemon


@pytest.mark.ci
def test_a_daemon_reports_ready_heartbeat_and_stopping(prefix: str) -> None:
    address = f"{runtime().directory}/notify"
    with notify_socket(address) as manager, up(NOTIFY_SOCKET=address, WATCHDOG_USEC="40000") as daemon:
        try:
            status = f"answers at {runtime().socket}"
            assert one(manager) == {"READY": "1", "MAINPID": str(daemon.pid), "STATUS": status}
            assert ask(runtime().socket, "/v1").status == 200
            assert [one(manager) for _ in range(3)] == [{"WATCHDOG": "1"}] * 3
            daemon.terminate()
            assert daemon.wait() == 0
            # a keep-alive message may follow
            (ending,) = (sign for sign in waiting(manager) if sign != b"WATCHDOG=1")
            assert ending.startswith(b"STOPPING=1\n")
        finally:
            daemon.kill()


_SEIZE, _INTERRUPT, _CONTINUE, _DETACH, _ANY_THREAD = 0x4206, 0x4207, 7, 17, 0x40000000
_POLLS = ("7 ", "73 ", "271 ")  # the system call numbers of poll and ppoll on x86-64, and of ppoll on arm64


@contextmanager
def loop_held(daemon: Running) -> Iterator[None]:
    """Stop the thread that drains, while the other threads continue."""
    ptrace = ctypes.CDLL(None, use_errno=True).ptrace
    ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
    threads = Path(f"/proc/{daemon.pid}/task")

    def resting() -> int:
        for each in threads.iterdir():
            if (each / "syscall").read_text().startswith(_POLLS):
                return int(each.name)
        return 0

    while not (thread := resting()):
        pass
    assert ptrace(_SEIZE, thread, None, None) == 0, os.strerror(ctypes.get_errno())
    try:
        while True:
            assert ptrace(_INTERRUPT, thread, None, None) == 0
            os.waitpid(thread, _ANY_THREAD)
            if (threads / str(thread) / "syscall").read_text().startswith(_POLLS):
                # Stop the thread only while it does not hold the interpreter lock. Otherwise, the other threads would
                # stop, too.
                break
            assert ptrace(_CONTINUE, thread, None, None) == 0
        yield
    finally:
        ptrace(_DETACH, thread, None, None)


@pytest.mark.slow
def test_a_daemon_with_a_stuck_loop_sends_no_heartbeat(prefix: str) -> None:
    address = f"{runtime().directory}/notify"
    with notify_socket(address) as manager, running(NOTIFY_SOCKET=address, WATCHDOG_USEC="40000") as daemon:

        def still_ns() -> int:
            return int(daemon.ask("")["loop_still_ns"])

        assert "READY" in one(manager)
        with loop_held(daemon):
            until(lambda: still_ns() >= 2_500_000_000)
            waiting(manager)
            until(lambda: still_ns() >= 3_000_000_000)
            assert waiting(manager) == []
        assert one(manager) == {"WATCHDOG": "1"}
