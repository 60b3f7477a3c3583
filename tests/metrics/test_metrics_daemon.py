"""Metrics of a real daemon: they continue after workers die and daemons are killed; their file is complete or
absent."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from conftest import ROOT
from faults import Start, needs_namespaces
from metric_pages import Series, get, labels, pages_of, parsed, value
from running import Running, running, until
from verbs import document, started

from brickd.datasources.shared_memory import SharedMemory
from brickd.metrics.textfile import Textfile
from brickd.model.survey_snapshot import Snapshot
from brickd.shm.segment_files import find

# 60 bricks; the first ones take the least time.
MANY = """
for number in range(60):
    brick.brick(f"b{number}").record(1000 * (number + 1))
pause()
brick.brick("b0").record(10**9)
pause()
"""


@contextmanager
def serving(*options: str) -> Iterator[tuple[Running, str]]:
    """Yield a daemon with metrics, and the address of its port."""
    with running(options=("--http", "127.0.0.1:0", "--metrics", *options)) as daemon:
        (address,) = re.findall(r"http://(\S+)/metrics", daemon.said)
        yield daemon, address


def page(address: str) -> Series:
    return parsed(get(address).body)


def of_services(of: Series) -> Series:
    """Return the counters of services."""
    names = ("brickd_span_seconds", "brickd_lost_records_total")
    return {key: number for key, number in of.items() if key[0].startswith(names)}


def after_deaths(daemon: Running, address: str, many: int) -> Series:
    """Return a page after this number of dead workers' segments were removed."""

    def died() -> list[Series]:
        of = page(address)
        return (
            [of] if value(of, "brickd_workers", service="api", state="died") == many and len(find()) == 2 - many else []
        )

    daemon.until("worker_died")
    (of,) = until(died)
    return of


@pytest.mark.ci
def test_counters_go_on_over_dead_workers_and_a_killed_daemon(worker: Start) -> None:
    with serving() as (daemon, address):
        first, second = (started(worker, MANY, BRICKD_SERVICE="api", BRICKD_WORKER=index) for index in "01")
        before = page(address)
        exported = {each["brick"] for each in labels(before, "brickd_span_seconds_count")}
        assert exported == {"other", *(f"b{number}" for number in range(10, 60))}
        assert value(before, "brickd_span_seconds_count", service="api", brick="b59") == 2
        first.kill()
        died = after_deaths(daemon, address, 1)
        assert of_services(died) == of_services(before)
        daemon.kill()
    second.go()
    second.paused()
    second.kill()
    with serving() as (daemon, address):
        after = after_deaths(daemon, address, 2)
        assert of_services(after).keys() == of_services(before).keys()
        grown = {key for key, number in of_services(after).items() if number != before[key]}
        assert {dict(key[1])["brick"] for key in grown} == {"other"}, "b0 was in other, and stays there"
        assert all(number >= before[key] for key, number in of_services(after).items())
        assert daemon.end() == "brickd: the daemon has ended\n"


def page_with_digests(address: str) -> Series:
    of = page(address)
    return of if len(labels(of, "brickd_weights_info")) == 2 else {}


WEIGHTS = """
import numpy as np
brick.weights({f"w{n}": np.full(64, n, np.float32) for n in range(4)}, share=1)
pause()
"""


@pytest.mark.ci
def test_replicas_have_the_digest_that_brickd_weights_shows(worker: Start) -> None:
    with serving() as (_, address):
        for index in "01":
            started(worker, WEIGHTS, BRICKD_SERVICE="api", BRICKD_WORKER=index)
        of = until(lambda: page_with_digests(address))
        shown = {each["worker"]: each["digest"] for each in document("weights")["workers"]}
        assert {each["worker"]: each["digest"] for each in labels(of, "brickd_weights_info")} == shown
        assert len(set(shown.values())) == 1
        assert value(of, "brickd_weights_info_suppressed", service="api", worker="api/1") == 0


def test_the_daemon_ends_at_once_whatever_clients_do(worker: Start) -> None:
    with serving() as (daemon, address):
        host, port = address.split(":")
        clients = [socket.create_connection((host, int(port))) for _ in range(4)]
        clients[0].sendall(f"GET /debug/pprof/bricks?seconds=60 HTTP/1.1\r\nHost: {address}\r\n\r\n".encode())
        clients[1].sendall(b"GET /metrics HT")
        assert get(address).status == 200
        daemon.end()
        assert clients[0].recv(15) == b"HTTP/1.1 200 OK", "a profile ends early, and its client gets it"
        for each in clients:
            each.close()


@pytest.mark.ci
def test_the_file_has_pages_until_the_daemon_ends(worker: Start, tmp_path: Path) -> None:
    file = tmp_path / "brickd.prom"
    started(worker, MANY, BRICKD_SERVICE="api")
    with running(options=("--metrics-textfile", str(file))) as daemon:
        of = parsed(file.read_bytes())
        assert value(of, "brickd_span_seconds_count", service="api", brick="b59") == 1
        assert file.stat().st_mode & 0o777 == 0o644
        assert document("status")["daemon"]["metrics_problem"] is None
        daemon.end()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.ci
def test_a_file_that_cannot_be_written_is_a_problem_and_not_the_end(worker: Start, tmp_path: Path) -> None:
    file = tmp_path / "gone" / "brickd.prom"
    with running(options=("--metrics-textfile", str(file), "--http", "127.0.0.1:0", "--metrics")) as daemon:
        (address,) = re.findall(r"http://(\S+)/metrics", daemon.said)
        daemon.until("metrics_failed")
        shown = document("status")
        assert shown["daemon"]["metrics_problem"] == f"{file}: No such file or directory"
        assert [each["text"] for each in shown["problems"]] == [
            f"the metrics cannot be written: {file}: No such file or directory"
        ]
        assert value(page(address), "brickd_daemon_textfile_failures_total") == 1


def test_failures_are_counted_and_logged_once_until_the_file_is_written_again(prefix: str, tmp_path: Path) -> None:
    file, logged = tmp_path / "in" / "brickd.prom", []
    pages = pages_of(SharedMemory())
    writer = Textfile(file, pages, lambda kind, text, **_: logged.append((kind, text)))
    look = Snapshot.of(SharedMemory().survey(), 0, 0)
    for _ in range(2):
        writer.take(look)
    assert (pages.textfile_failures, writer.trouble) == (2, f"{file}: No such file or directory")
    file.parent.mkdir()
    writer.take(look)
    assert (pages.textfile_failures, writer.trouble) == (2, None)
    assert b"brickd_daemon_textfile_failures_total 2\n" in file.read_bytes()
    assert logged == [
        ("metrics_failed", f"{file}: the metrics cannot be written: No such file or directory"),
        ("metrics_written", f"{file}: the metrics can be written again"),
    ]
    writer.remove()
    writer.remove()
    assert list(file.parent.iterdir()) == []


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to(path.parent / "other")], ids=["pipe", "link"])
def test_a_pipe_or_a_link_in_the_place_of_the_file_is_replaced(
    prefix: str, tmp_path: Path, make: Callable[[Path], None]
) -> None:
    file, other = tmp_path / "brickd.prom", tmp_path / "other"
    other.write_text("of someone else")
    make(file)
    writer = Textfile(file, pages_of(SharedMemory()), lambda *_, **__: None)
    writer.take(Snapshot.of(SharedMemory().survey(), 0, 0))
    assert writer.trouble is None
    assert not file.is_symlink()
    assert parsed(file.read_bytes())
    assert other.read_text() == "of someone else"


FULL = """
import sys; sys.path[:0] = sys.argv[1:]
import os
from pathlib import Path
from metric_pages import pages_of
from brickd.datasources.shared_memory import SharedMemory
from brickd.metrics.textfile import Textfile
from brickd.model.survey_snapshot import Snapshot
folder = Path("/mnt")
pages, look = pages_of(SharedMemory()), Snapshot.of(SharedMemory().survey(), 0, 0)
writer = Textfile(folder / "brickd.prom", pages, lambda *_, **__: None)
writer.take(look)
before = (folder / "brickd.prom").read_bytes()
room = os.statvfs(folder)
(folder / "full").write_bytes(bytes(room.f_bfree * room.f_bsize))
writer.take(look)
assert writer.trouble == "/mnt/brickd.prom: No space left on device", writer.trouble
assert pages.textfile_failures == 1
assert (folder / "brickd.prom").read_bytes() == before
assert sorted(os.listdir(folder)) == ["brickd.prom", "full"]
(folder / "full").unlink()
writer.take(look)
assert writer.trouble is None
"""


@pytest.mark.ci
@needs_namespaces
def test_on_a_full_disk_the_last_page_stays_and_no_draft(prefix: str) -> None:
    command = 'mount -t tmpfs -o size=64k none /mnt && exec "$@"'
    program = [sys.executable, "-P", "-c", FULL, str(ROOT / "tests"), str(ROOT / "tests/support")]
    subprocess.run(["unshare", "-m", "sh", "-c", command, "sh", *program], check=True)
