"""If the daemon is killed, stopped or absent, no request to a server fails, and no counter decreases."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
from model_servers import APP, Load, Server, spans, until
from running import running
from sandbox import apart
from verbs import document

REASON = "is not installed: .ci/run does it"
for needed in ("torch", "transformers", "fastapi", "uvicorn"):
    pytest.importorskip(needed, reason=f"{needed} {REASON}")
pytestmark = pytest.mark.slow

WORKERS = 2


@pytest.fixture(scope="module", autouse=True)
def isolated() -> Iterator[str]:
    with apart() as name:
        yield name


@pytest.fixture(scope="module")
def server(isolated: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Start the server without a daemon."""
    folder = tmp_path_factory.mktemp("uvicorn")
    (folder / "app.py").write_text(APP)
    one = Server(folder, sys.executable, "-m", "uvicorn", "app:app", "--workers", str(WORKERS), "--host",
                 "127.0.0.1", "--port", "PORT", "--log-level", "warning")  # fmt: skip
    try:
        until(one.up)
        for seed in range(2):
            one.workers(WORKERS, seed)
        yield one
    finally:
        one.end()


class Counted:
    """The counts of the workers, which never decrease."""

    def __init__(self, server: Server) -> None:
        self._server, self._before = server, spans()

    def more(self, source: str) -> None:
        """Assert that each worker of the server has answered since the last call, and that brickd shows it."""
        self._server.workers(WORKERS)
        now = spans()
        assert document("status")["source"] == source
        assert now.keys() == self._before.keys()
        assert len(now) == WORKERS
        for uuid, (name, number) in now.items():
            assert name == self._before[uuid][0]
            assert number > self._before[uuid][1]
        self._before = now


@pytest.fixture
def counted(server: Server) -> Counted:
    return Counted(server)


@pytest.fixture
def load(server: Server) -> Iterator[Load]:
    load = Load(server)
    try:
        load.more()
        yield load
        load.more()
    finally:
        failed = load.end()
    assert failed == []


def test_requests_and_totals_are_complete_without_a_daemon(counted: Counted, load: Load) -> None:
    counted.more("shared memory")
    load.more()
    counted.more("shared memory")


def test_requests_and_totals_are_complete_while_a_daemon_starts_and_ends(counted: Counted, load: Load) -> None:
    with running() as daemon:
        counted.more("daemon")
        load.more()
        counted.more("daemon")
        daemon.end()
    counted.more("shared memory")


def test_requests_and_totals_are_complete_while_a_daemon_is_stopped(counted: Counted, load: Load) -> None:
    with running() as daemon:
        counted.more("daemon")
        with daemon.stopped():
            load.more(50)  # more requests than the event rings have room for
        counted.more("daemon")


def test_requests_and_totals_are_complete_when_a_killed_daemon_is_replaced(counted: Counted, load: Load) -> None:
    with running() as daemon:
        counted.more("daemon")
        daemon.kill()
        load.more()
        counted.more("shared memory")
    with running() as other:
        counted.more("daemon")
        load.more()
        other.once("/coverage", lambda answer: any(each["input"]["fingerprints"] for each in answer["services"]))
        counted.more("daemon")
