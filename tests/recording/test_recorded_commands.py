"""Each command that a view of a recording shows can be pasted, and then runs on that recording."""

from __future__ import annotations

import shlex
import signal
from pathlib import Path
from typing import Any

import pytest
from faults import Start
from test_record import recording
from verbs import brickd, document

from brickd.query.verbs import VERBS, takes_recordings
from brickd.views.next_command import command, rewritten

WORKER = """
from array import array
brick.init(names=64)
pause()
brick.weights({"w": array("f", [n])})
for step in range(3):
    brick.checksum("k", array("f", [step, n]), input=array("f", [step]), step=step)
for number in range(100):
    with brick.span(f"n{number}"): pass
pause()
"""


@pytest.fixture
def recorded(worker: Start, tmp_path: Path) -> str:
    """Make a recording of two workers with different weights and results, and with a full table of names."""
    path = str(tmp_path / "o'ne two.brick")
    workers = [worker(f"n = {n}\n{WORKER}", BRICKD_SERVICE="-api", BRICKD_WORKER=str(n)) for n in range(2)]
    for each in workers:
        each.paused()
    with recording("-o", path) as process:
        for each in workers:
            each.go()
            each.paused()
        for each in workers:
            each.kill()
        process.send_signal(signal.SIGINT)
        process.communicate()
    return path


def commands(answer: dict[str, Any]) -> list[str]:
    """Return all commands in a document."""
    entries = [each for value in answer.values() if isinstance(value, list) for each in value]
    return [each["command"] for each in entries if isinstance(each, dict) and each.get("command") is not None]


@pytest.mark.ci
def test_each_command_shown_for_a_recording_runs_on_it(recorded: str) -> None:
    shown = {each: commands(document(each, recorded)) for each in ("status", "workers", "coverage")}
    shown["check"] = commands(document("status", recorded, "--check", code=1))
    asked = {reported for found in shown.values() for reported in found}
    assert {shlex.split(reported)[1] for reported in asked} == {"weights", "diff", "inspect", "workers", "coverage"}
    screen = brickd("status", recorded).stdout.splitlines()
    problems = [line for line in screen if line.startswith("! ")]
    assert all(any(line.endswith(f"  {reported}") for reported in shown["status"]) for line in problems)
    for reported in asked | {line.rpartition(": ")[2] for line in screen if line.startswith("…")}:
        program, *words = shlex.split(reported)
        answer = brickd(*words[:1], "--json", *words[1:])
        assert (program, answer.returncode in (0, 1), '"recording"' in answer.stdout) == ("brickd", True, True), (
            reported,
            answer,
        )


@pytest.mark.ci
def test_a_difference_in_a_recording_suggests_no_command_for_this_machine(recorded: str) -> None:
    answer = document("diff", recorded, code=1)
    assert "-api/0 and -api/1 disagree in weight w (--by weights)" in answer["headlines"]
    assert not [line for line in answer["headlines"] if "brickd " in line]


@pytest.mark.parametrize(
    "text", ["brickd prune", "sudo -u '#7' brickd prune", "brickd", "", "'", "brickd up -d", "x y"]
)
def test_a_command_that_takes_no_recording_is_not_shown_for_one(text: str) -> None:
    document = {"recording": {"files": [{"path": "a.brick"}, {"path": "b c.brick"}]}, "events": [{"command": text}, {}]}
    assert rewritten(document)["events"] == [{"command": "brickd workers a.brick 'b c.brick'"}, {}]
    assert command({}, text) == text


# This list is written by hand. If it came from the table of verbs, a verb that is missing in the table would be missing
# here, too.
TAKE_RECORDINGS = (
    "bricks", "coverage", "diff", "events", "export", "hang", "history", "inspect", "roofline", "source", "spans",
    "status", "stragglers", "tree", "weights", "workers",
)  # fmt: skip


@pytest.mark.parametrize("verb", TAKE_RECORDINGS)
def test_each_suggested_verb_takes_a_recording(verb: str, tmp_path: Path) -> None:
    reported = f"brickd {verb} api"
    assert command({"recording": {"files": [{"path": "a.brick"}]}}, reported) == f"brickd {verb} a.brick api"
    options = ("-f", "csv", "-o", "-") if verb == "export" else ()
    ended = brickd(verb, str(tmp_path / "none.brick"), *options)
    assert (ended.returncode, "none.brick" in ended.stderr) == (2, True)
    assert "No such file" in ended.stderr, ended.stderr


def test_each_querying_verb_takes_recordings_and_no_other_does() -> None:
    assert sorted(filter(takes_recordings, VERBS)) == list(TAKE_RECORDINGS)
