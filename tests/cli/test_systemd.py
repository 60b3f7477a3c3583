"""The systemd units: systemd-analyze accepts them, and a daemon works with their restrictions."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import systemd_confinement as confinement
from conftest import ROOT, SHM, another_user
from faults import Start, needs_namespaces
from metric_pages import get, parsed, value
from rounds import ROUNDS, STARTS, again, closed
from running import running, up
from serving import ask
from test_alarms_sent import server
from test_notify import notify_socket, one, waiting

from brickd.base.paths import runtime

UNITS = ROOT / "systemd"
SERVICE, USER_SERVICE = UNITS / "brickd@.service", UNITS / "user" / "brickd.service"
NOTIFY_URL, HTTP = UNITS / "notify-url.conf", UNITS / "http.conf"
MOST_EXPOSED = 1.5


def needs(program: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(program) is None, reason=f"needs {program} (Debian: systemd)")


@pytest.fixture
def analyze(tmp_path: Path) -> Callable[..., str]:
    """Run `systemd-analyze` for a unit as it is installed for a user; return the output."""

    def run(unit: Path, *arguments: str, drop_in: Path | None = None) -> str:
        # systemd-analyze accepts a unit only if its program exists and the name of a template has an instance. It also
        # needs the folder of the user's service manager.
        installed = tmp_path / unit.name.replace("@", "@alice")
        texts = {installed: unit.read_text()}
        if drop_in is not None:
            texts[installed.with_name(f"{installed.name}.d") / drop_in.name] = drop_in.read_text()
        for path, text in texts.items():
            path.parent.mkdir(exist_ok=True)
            path.write_text(re.sub(r"(?<=ExecStart=)\S+(?= up\b)", sys.executable, text))
            assert sys.executable in path.read_text()
        # Other units have their sockets in this folder. Its path must be short, because the path of a socket may have
        # at most 107 bytes.
        Path(os.environ["XDG_RUNTIME_DIR"]).mkdir(exist_ok=True)
        command = ["systemd-analyze", "--no-pager", *arguments, os.fspath(installed)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return f"{done.stdout}{done.stderr}"

    return run


@pytest.mark.ci
@needs("systemd-analyze")
@pytest.mark.parametrize(("unit", "manager"), [(SERVICE, "--system"), (USER_SERVICE, "--user")])
def test_systemd_analyze_accepts_the_units(analyze: Callable[..., str], unit: Path, manager: str) -> None:
    assert analyze(unit, manager, "verify") == ""


@needs("systemd-analyze")
@pytest.mark.parametrize("drop_in", [None, HTTP])
def test_the_exposure_level_of_the_service_is_low(analyze: Callable[..., str], drop_in: Path | None) -> None:
    reported = analyze(SERVICE, "security", "--offline=yes", drop_in=drop_in)
    assert ("Service defines IP address allow list with only localhost entries" in reported) == (drop_in == HTTP)
    answer = re.search(r"Overall exposure level for brickd@alice.service: ([\d.]+)", reported)
    assert answer is not None, reported
    assert float(answer[1]) <= MOST_EXPOSED, f"{answer[1]} seen, {MOST_EXPOSED} wanted:\n{reported}"


@pytest.mark.ci
@needs("systemd-analyze")
@pytest.mark.parametrize(("drop_in", "opens"), [(NOTIFY_URL, {"RestrictAddressFamilies_AF_NETLINK"}), (HTTP, set())])
def test_a_drop_in_opens_only_the_network(analyze: Callable[..., str], drop_in: Path, opens: set[str]) -> None:
    def exposed(**more: Path) -> set[str]:
        reported = analyze(SERVICE, "security", "--offline=yes", "--json=short", **more)
        return {each["json_field"] for each in json.loads(reported) if each["set"] is False}

    without = exposed()
    network = {"PrivateNetwork", "RestrictAddressFamilies_AF_INET_INET6"}
    assert exposed(drop_in=drop_in) - without == network | opens
    assert analyze(SERVICE, "--system", "verify", drop_in=drop_in) == ""


def test_the_drop_in_for_a_url_lifts_only_two_limits() -> None:
    unit, drop_in = (
        confinement.read(SERVICE.read_text(), "www"),
        confinement.read(NOTIFY_URL.read_text(), "www"),
    )
    assert drop_in.pop("PrivateNetwork") == ["no"]
    assert drop_in.pop("RestrictAddressFamilies") == ["AF_INET AF_INET6 AF_NETLINK"], "these are added to AF_UNIX"
    reset, command = drop_in.pop("ExecStart")
    (before,) = unit["ExecStart"]
    assert (reset, command.removeprefix(before).split()[::2]) == ("", ["--notify-url", "--notify-secret-file"])
    assert command.startswith(f"{before} ")
    assert drop_in == {}


def test_the_drop_in_for_metrics_opens_only_loopback() -> None:
    unit, drop_in = (confinement.read(each.read_text(), "www") for each in (SERVICE, HTTP))
    reset, command = drop_in.pop("ExecStart")
    assert (reset, command) == ("", f"{unit['ExecStart'][0]} --http 127.0.0.1:9230 --metrics")
    assert drop_in == {
        "PrivateNetwork": ["no"],
        "RestrictAddressFamilies": ["AF_INET AF_INET6"],
        "IPAddressDeny": ["any"],
        "IPAddressAllow": ["localhost"],
    }


def test_segments_and_the_runtime_directory_outlive_the_service() -> None:
    service = confinement.read(SERVICE.read_text(), "alice")
    assert (service["RemoveIPC"], service["RuntimeDirectoryPreserve"]) == (["no"], ["yes"])
    assert confinement.read(USER_SERVICE.read_text(), "")["RuntimeDirectoryPreserve"] == ["yes"]


@needs("systemd-tmpfiles")
def test_systemd_does_not_remove_segments_by_age(tmp_path: Path) -> None:
    (tmp_path / "dev/shm").mkdir(parents=True)
    for name in ("brickd-0123", "other"):
        (tmp_path / "dev/shm" / name).touch()
    (tmp_path / "ages.conf").write_text("q /dev/shm 1777 root root 0\n")
    ours = UNITS / "tmpfiles.d" / "brickd.conf"
    files = map(os.fspath, (tmp_path / "ages.conf", ours))
    subprocess.run(["systemd-tmpfiles", "--clean", f"--root={tmp_path}", *files], check=True)
    assert os.listdir(tmp_path / "dev/shm") == ["brickd-0123"]


_RUN = 'mount -t tmpfs none /run && install -d -o "${1%:*}" "${1#*:}" && shift && exec "$@"'


@pytest.mark.ci
@needs_namespaces
@pytest.mark.parametrize(
    ("made", "session", "place"),
    [
        ("nobody:/run/brickd-nobody", "/run/user/65534", "/run/brickd-nobody"),
        ("nobody:/run/brickd-nobody", None, "/run/brickd-nobody"),
        ("nobody:/run/brickd-else", "/run/user/65534", "/run/user/65534/brickd"),
        ("root:/run/brickd-nobody", "/run/user/65534", "/run/user/65534/brickd"),
        ("root:/run/brickd-nobody", None, "/run/brickd-nobody"),
    ],
)
def test_a_session_of_the_services_user_finds_the_daemon(
    nobody: list[str], made: str, session: str | None, place: str
) -> None:
    named = ("BRICKD_RUNTIME_DIR", "XDG_RUNTIME_DIR")
    environment = {name: value for name, value in os.environ.items() if name not in named}
    environment |= {} if session is None else {"XDG_RUNTIME_DIR": session}
    asked = [sys.executable, "-P", "-c", "from brickd.base.paths import runtime; print(runtime().directory)"]
    command = ["unshare", "-m", "sh", "-c", _RUN, "sh", made, *nobody, *asked]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    assert done.stdout == f"{place}\n"


# ---- confined like the service

can_confine = pytest.mark.skipif(bool(confinement.missing()), reason=confinement.missing())
NOBODY = 65534
GROUP, CLIENT = 61000, 61003


def settings(text: str = "") -> confinement.Settings:
    """Return the settings of the service for the user nobody."""
    return confinement.read(text or SERVICE.read_text(), "nobody")


@pytest.fixture
def place(nobody: list[str], prefix: str) -> Path:
    """Create the runtime directory of the service, as systemd does."""
    folder = runtime().directory
    os.chown(folder, NOBODY, NOBODY)
    (mode,) = settings()["RuntimeDirectoryMode"]
    folder.chmod(int(mode, 8))
    return folder


@pytest.mark.slow
@can_confine
def test_a_daemon_confined_like_the_service_drains_its_users_segments(
    place: Path, nobody: list[str], worker: Start, prefix: str
) -> None:
    unit = settings()
    lives, dies = (worker(f"{ROUNDS}\nrounds()", before=tuple(nobody), BRICKD_SERVICE="api") for _ in range(2))
    for each in (lives, dies):
        each.next_report()
    notified = {"NOTIFY_SOCKET": f"{confinement.place(unit)}/notify", "WATCHDOG_USEC": "4000000"}
    with notify_socket(f"{place}/notify") as manager:
        (place / "notify").chmod(0o777)
        with running(command=confinement.command(unit, place), **notified) as daemon:
            assert one(manager)["READY"] == "1"
            assert one(manager) == {"WATCHDOG": "1"}
            closed(daemon, 2 * STARTS)
            dies.kill()
            daemon.until("worker_died")
            again(lives)
            status = closed(daemon, 3 * STARTS)
            assert status["ledger"]["spans"]["summarized"] == 3 * STARTS
            assert sorted(each["pid"] for each in status["workers"] if each["state"] == "live") == [lives.pid]
            while len(list(SHM.glob(f"{prefix}*"))) > 1:  # the daemon removes a segment when its totals are saved
                daemon.ask("")
            # Every ten seconds, the daemon checks the workers' processes in /proc. It sees only the processes of its
            # own user there.
            while not any(each["rss_bytes"] for each in daemon.ask("/workers")["workers"]):
                pass
            assert {each["kind"] for each in daemon.ask("/events")["events"]} == {
                "daemon_started", "worker_found", "worker_died",
            }  # fmt: skip
            reported = ask(runtime().socket, "/v1/record", b"duration=0.01").body
            assert b"event: done" in reported
            assert b'"path":"/var/lib/brickd-nobody/recordings/brickd-' in reported
            assert daemon.end() == "brickd: the daemon has ended\n"
        assert waiting(manager)[-1].startswith(b"STOPPING=1")
    assert (place / "checkpoint").stat().st_uid == NOBODY


def drop_in(title: str) -> str:
    """Return the lines of the drop-in that a comment in the unit suggests.

    The paragraph before these lines contains `title`.
    """
    paragraphs = SERVICE.read_text().partition("[Unit]")[0].split("\n#\n")
    (at,) = (n for n, paragraph in enumerate(paragraphs) if title in paragraph)
    return "\n".join(line.removeprefix("#   ") for line in paragraphs[at + 1].splitlines())


@pytest.mark.slow
@can_confine
def test_with_the_drop_in_for_a_group_the_service_answers_members(
    place: Path, nobody: list[str], worker: Start, prefix: str
) -> None:
    there = drop_in("members of a group may read")
    assert there.startswith("[Service]\nEnvironment=BRICKD_GROUP=ops\n")
    unit = settings(f"{SERVICE.read_text()}\n{there.replace('ops', str(GROUP))}")
    one = worker(f"{ROUNDS}\nrounds()", before=tuple(nobody), BRICKD_SERVICE="api")
    one.next_report()
    with running(command=confinement.command(unit, place)) as daemon:
        closed(daemon, STARTS)
        asked = [*another_user(CLIENT, GROUP), sys.executable, "-P", "-m", "brickd", "status", "--json"]
        done = subprocess.run(asked, capture_output=True, text=True, check=True)
        assert json.loads(done.stdout)["source"] == "daemon"


@pytest.mark.slow
@can_confine
def test_with_the_drop_in_for_a_url_the_service_posts_alarms(place: Path, nobody: list[str], prefix: str) -> None:
    secret = place / "secret"
    secret.touch(0o600)
    secret.write_text("s3cret")
    os.chown(secret, NOBODY, NOBODY)
    with server(204) as one:
        given = NOTIFY_URL.read_text().replace("https://alerts.example.org/brickd", one.url)
        unit = settings(f"{SERVICE.read_text()}\n{given}".replace("/etc/brickd/%i.secret", "/run/brickd-%i/secret"))
        with running(command=confinement.command(unit, place)) as daemon:
            reported = ask(runtime().socket, "/v1/notify/test", b"").body
            assert json.loads(reported)["targets"][0]["answer"] == "answered 204", reported
            assert one.got[0][1]["brickd-signature"].startswith("sha256=")
            daemon.end()
        tries = "import socket; socket.socket(); print('internet', flush=True); socket.socket(socket.AF_PACKET)"
        command = confinement.command(unit, place, [sys.executable, "-c", tries])
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.stdout == "internet\n"
        assert "Address family not supported" in done.stderr


@pytest.mark.slow
@can_confine
def test_with_the_drop_in_for_metrics_the_service_answers_prometheus(
    place: Path, nobody: list[str], worker: Start, prefix: str
) -> None:
    one = worker(f"{ROUNDS}\nrounds()", before=tuple(nobody), BRICKD_SERVICE="api")
    one.next_report()
    unit = settings(f"{SERVICE.read_text()}\n{HTTP.read_text().replace(':9230', ':0')}")
    with running(command=confinement.command(unit, place)) as daemon:
        closed(daemon, STARTS)
        (address,) = re.findall(r"http://(\S+)/metrics", daemon.said)
        assert value(parsed(get(address).body), "brickd_workers", service="api", state="live") == 1
        daemon.end()


# Tries what an attacker who controls the daemon would try, and also what the daemon does in its normal work. Prints a
# line "attempt: result" for each try.
TRIES = """
import ctypes, json, mmap, os, socket, sys, tempfile
libc = ctypes.CDLL(None, use_errno=True)
def call(name, *arguments):
    if getattr(libc, name)(*arguments) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
server, place = int(sys.argv[1]), sys.argv[2]
tries = {
    "a segment": lambda: open("/dev/shm/" + os.environ["BRICKD_SHM_PREFIX"] + str(os.getpid()), "w"),
    "its runtime directory": lambda: open(place + "/x", "w"),
    "a temporary file": tempfile.TemporaryFile,
    "its user's processes": lambda: open(f"/proc/{server}/statm"),
    "a unix socket": lambda: socket.socket(socket.AF_UNIX),
    "others' processes": lambda: open("/proc/1/stat"),
    "a device": lambda: open("/dev/tty", "w").close() if os.isatty(0) else os.stat("/dev/ptmx"),
    "the network": lambda: socket.socket(socket.AF_INET),
    "the kernel's routes": lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW),
    "the server's memory": lambda: call("ptrace", 16, server, None, None),
    "a program written at run time": lambda: mmap.mmap(-1, 4096, prot=7),
    "a set-user-id file": lambda: os.chmod(place, 0o4700),
    "a processor of its choice": lambda: os.sched_setaffinity(0, os.sched_getaffinity(0)),
    "an old personality": lambda: call("personality", 0x0040000),
    "a namespace": lambda: call("unshare", 0x10000000),
    "the system's files": lambda: open("/etc/passwd", "w"),
    "the kernel's settings": lambda: open("/proc/sys/kernel/hostname", "w"),
}
went = {}
for what, tried in tries.items():
    try:
        tried()
    except OSError as error:
        went[what] = os.strerror(error.errno)
    else:
        went[what] = "done"
print(json.dumps(went))
"""
NEEDED = {"a segment", "its runtime directory", "a temporary file", "its user's processes", "a unix socket"}
# The user nobody may not do these things anyway, but the errors show that the unit forbids them.
WALLS = {
    "a namespace": "Operation not permitted",
    "the system's files": "Read-only file system",
    "the kernel's settings": "Read-only file system",
}


@pytest.mark.slow
@can_confine
def test_the_service_sandbox_allows_only_what_the_daemon_needs(place: Path, nobody: list[str], worker: Start) -> None:
    server = worker("pause()", before=tuple(nobody))
    server.paused()

    def tried(*before: str, there: str) -> dict[str, str]:
        probe = [sys.executable, "-c", TRIES, str(server.pid), there]
        command = confinement.command(settings(), place, probe) if not before else [*before, *probe]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        went: dict[str, str] = json.loads(done.stdout)
        return went

    free, held = tried(*nobody, there=os.fspath(place)), tried(there=confinement.place(settings()))
    assert {what for what, how in free.items() if how == "done"} >= free.keys() - WALLS.keys()
    assert {what for what, how in held.items() if how == "done"} == NEEDED
    assert {what: held[what] for what in WALLS} == WALLS


@pytest.mark.slow
@can_confine
def test_a_daemon_without_a_needed_permission_does_not_start(place: Path) -> None:
    denied = settings()
    denied["SystemCallFilter"].append("~@file-system")
    with up(command=confinement.command(denied, place)) as daemon:
        try:
            assert daemon.stdout is not None
            assert daemon.stdout.readline() == b""
            assert daemon.wait() != 0
        finally:
            daemon.kill()
