"""The README's ways to ask the daemon, run as they stand there."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess

import pytest
from conftest import ROOT
from faults import Start
from serving import Daemon
from verbs import started

from brickd.runtime import runtime

EXAMPLES = re.findall(r"^\$ (curl .*)$", (ROOT / "README.md").read_text(), re.MULTILINE)
ENDLESS = "# does not end"


def asked(command: str, lines: int | None = None) -> str:
    """What a shell prints; of what does not end so many lines."""
    if shutil.which("curl") is None:
        pytest.skip("no curl here")
    shell = ["bash", "-c", command.replace("curl ", "curl --silent --show-error --fail ", 1)]
    environment = os.environ | {"BRICKD_SOCKET": str(runtime().socket)}
    with subprocess.Popen(shell, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        if lines is not None:
            said = "".join(process.stdout.readline() for _ in range(lines))
            process.kill()
            return said
        said = process.stdout.read()
    assert process.returncode == 0, command
    return said


@pytest.mark.parametrize("example", [line for line in EXAMPLES if ENDLESS not in line])
def test_an_example_is_answered_with_a_document(worker: Start, daemon: Daemon, example: str) -> None:
    started(worker, BRICKD_SERVICE="api")
    document = json.loads(asked(example))
    assert (document["schema_version"], document["source"]) == (1, "daemon")


@pytest.mark.parametrize("example", [line for line in EXAMPLES if ENDLESS in line])
def test_an_example_of_a_stream_tells_events(worker: Start, daemon: Daemon, example: str) -> None:
    started(worker, BRICKD_SERVICE="api")
    daemon.events.add("worker_found", "api/0 was found", service="api", worker="api/0")
    lines = asked(example, lines=4).splitlines()
    (data,) = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
    assert isinstance(json.loads(data), dict)
    assert any(line.startswith("event: ") for line in lines)


def test_every_path_of_the_readme_is_tried() -> None:
    assert len(EXAMPLES) >= 8
    assert sum(ENDLESS in example for example in EXAMPLES) == 2
