"""While a worker and its daemon run, their environment is upgraded from the wheels of one version to those of the next.
Nothing is lost.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from running import until
from test_earlier_builds import RECORDS, SPANS, STEPS, Recording, summarized
from wheels import (
    VERSION,
    build_wheels,
    copied,
    distributions,
    edited,
    environment_of,
    fetch_needed,
    install,
    outside,
    ran,
)

from brickd.shm import _reader

NEXT = "99.0.0"
MINOR = int(_reader.FORMAT.split(".")[1])

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800), pytest.mark.usefixtures("prefix")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with wheels of two versions, this one and the next. Segments of the next version have the next
    minor version of the format.
    """
    folder = tmp_path_factory.mktemp("wheels")
    tree = edited(copied(folder / "next"), NEXT, MINOR + 1)
    build_wheels(folder, tree, tree / "agent")  # first, because another process may be building this version
    shutil.copytree(distributions(), folder, dirs_exist_ok=True)
    fetch_needed(folder)
    return folder


class Server:
    """An environment with brickd and brick-agent, first of this version, later upgraded."""

    def __init__(self, programs: Path, folder: Path, at: Path) -> None:
        self._programs, self._folder, self._at = programs, folder, at
        self.started: list[subprocess.Popen[str]] = []

    def brickd(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a verb, which must print no traceback."""
        ended = ran(self._programs, self._at, "brickd", *arguments)
        assert "Traceback" not in ended.stderr, ended.stderr
        return ended

    def document(self, *arguments: str) -> Any:
        return json.loads(self.brickd(*arguments, "--json").stdout)

    def worker(self, number: int) -> Recording:
        """Start a worker of the agent that is installed now."""
        pipe = subprocess.PIPE
        command = [str(self._programs / "python"), "-P", "-c", RECORDS, str(number)]
        self.started.append(
            subprocess.Popen(command, cwd=self._at, env=outside(), stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        )
        return Recording(self.started[-1])

    def upgrade(self, distribution: str) -> None:
        """Install the next version while everything runs."""
        install(self._programs, self._folder, f"{distribution}=={NEXT}")

    def up(self) -> None:
        ended = self.brickd("up", "-d")
        assert ended.returncode == 0, ended.stderr

    def restart(self) -> None:
        assert self.brickd("down").returncode == 0
        self.up()

    def shows(self, *spans: int, source: str = "daemon") -> list[dict[str, Any]]:
        """Wait until each worker has this number of spans; return the workers."""

        def so() -> list[dict[str, Any]]:
            answer = self.document("workers")
            workers: list[dict[str, Any]] = answer["workers"]
            return workers if (answer["source"], [*map(summarized, workers)]) == (source, [*spans]) else []

        return until(so)

    def minors(self) -> list[int]:
        return [
            self.document("inspect", each["name"])["header"]["minor"] for each in self.document("workers")["workers"]
        ]


@pytest.fixture
def server(folder: Path, tmp_path: Path) -> Iterator[Server]:
    programs = environment_of(tmp_path / "environment", folder, f"brickd=={VERSION}", f"brick-agent=={VERSION}")
    server = Server(programs, folder, tmp_path)
    yield server
    server.brickd("down")
    for process in server.started:
        with process:
            process.kill()


def ended(server: Server, live: Recording, *spans: int) -> None:
    """End the last worker cleanly; check that it is counted and that none of its records is lost."""
    live.end()
    until(lambda: server.shows(*spans)[-1]["state"] == "ended")
    assert [each["ledger"]["events"]["dropped"] for each in server.shows(*spans)] == [{}] * len(spans)


def test_a_live_worker_of_an_older_agent_is_observed_while_brickd_is_upgraded(server: Server) -> None:
    live = server.worker(0)
    server.up()
    live.spans(STEPS)
    server.shows(SPANS)
    server.upgrade("brickd")
    live.spans(STEPS)
    (entry,) = server.shows(2 * SPANS)
    assert entry["state"] == "live", "the new command asks the old daemon"
    findings = server.document("doctor")["findings"]
    (old,) = [each for each in findings if f"brickd {VERSION}" in each["seen"] and each["state"] == "advice"]
    assert old["fix"] == "brickd down && brickd up -d"
    assert server.brickd("down").returncode == 0
    live.spans(STEPS)
    server.shows(3 * SPANS, source="shared memory")
    server.up()
    live.spans(STEPS)
    (entry,) = server.shows(4 * SPANS)
    assert (entry["state"], entry["problem"], server.minors()) == ("live", None, [MINOR])
    assert not [each for each in server.document("doctor")["findings"] if f"brickd {VERSION}" in each["seen"]]
    ended(server, live, 4 * SPANS)


def test_workers_of_an_older_and_a_newer_agent_are_observed_until_brickd_is_upgraded_too(server: Server) -> None:
    old = server.worker(0)
    server.up()
    old.spans(STEPS)
    server.upgrade("brick-agent")
    new = server.worker(1)
    new.spans(STEPS)
    old.spans(STEPS)
    workers = server.shows(2 * SPANS, SPANS)
    assert [(each["state"], each["problem"]) for each in workers] == [("live", None)] * 2
    assert server.minors() == [MINOR, MINOR + 1]
    server.upgrade("brickd")
    server.restart()
    for live in (old, new):
        live.spans(STEPS)
    workers = server.shows(3 * SPANS, 2 * SPANS)
    assert [(each["state"], each["problem"]) for each in workers] == [("live", None)] * 2
    ended(server, new, 3 * SPANS, 2 * SPANS)
