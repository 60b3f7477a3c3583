"""The rules for every verb that takes workers."""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import click
import pytest
from faults import Start
from made_up_workers import HOSTILE
from verbs import brickd, document, sheet, started

from brickd import views
from brickd.base.units import NO_WORKERS
from brickd.cli import brickd as group
from brickd.query.verbs import VERBS, takes_recordings

# Each verb, and the key under which its document has the rows. `weights` has another exit code if nothing is
# comparable, and `roofline` if no peaks were measured.
ASKED = {"status": "bricks", "workers": "workers", "bricks": "bricks", "tree": "nodes", "hang": "open"}
OPTIONS = {"hang": ("--watch", "0.01", "--longer", "0")}
NAMES = ["two\nlines", HOSTILE]
LOOP = f"""
outer, inner = (brick.brick(name, name) for name in {NAMES!r})
with outer, inner: pass
with outer, inner: pause()
"""


def words(verb: str) -> tuple[str, ...]:
    return verb, *OPTIONS.get(verb, ())


def texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for each in value.values() if isinstance(value, dict) else value:
            yield from texts(each)


def test_these_verbs_take_workers() -> None:
    context = click.Context(group)
    commands = {verb: group.get_command(context, verb) for verb in VERBS}
    arguments = {
        verb: [parameter.metavar or "" for parameter in command.params if isinstance(parameter, click.Argument)]
        for verb, command in commands.items()
        if command is not None
    }
    about = "[RECORDING]... [WORKER|SERVICE]..."
    found = {verb for verb, metavars in arguments.items() if about in metavars}
    assert found == {*ASKED, "roofline", "weights", "spans", "export", "history", "top"}


def test_verbs_with_a_view_and_those_without_a_daemon_take_recordings() -> None:
    """Every view is a verb, except `fingerprints`, which only the API has."""
    found = pkgutil.iter_modules(views.__path__, "brickd.views.")
    answering = {name for _, name, _ in found if hasattr(importlib.import_module(name), "answer")}
    named = {name.rpartition(".")[2] for name in answering} - {"fingerprints"}
    assert set(filter(takes_recordings, VERBS)) == named | {"roofline", "spans", "export"}


@pytest.mark.parametrize("verb", ASKED)
def test_hostile_names_are_escaped_in_every_format(worker: Start, verb: str) -> None:
    started(worker, LOOP, BRICKD_SERVICE="=cmd()\x1b]0;owned\x07")
    lines = brickd(*words(verb)).stdout.removesuffix("\n").split("\n")
    assert len(lines) > 1
    assert all(line.isprintable() and not line.startswith("|") for line in lines)
    answer = document(*words(verb))
    assert HOSTILE in set(texts(answer))
    rows = [json.loads(line) for line in brickd(*words(verb), "-o", "jsonl").stdout.splitlines()]
    assert [list(row) for row in rows] == [list(row) for row in answer[ASKED[verb]]]
    cells = sheet(*words(verb))
    assert [list(row) for row in cells] == [list(row) for row in rows]
    assert not any(cell.startswith(("=", "+", "-", "@")) for row in cells for cell in row.values())


@pytest.mark.ci
def test_h_prints_the_help_of_brickd_and_of_every_verb() -> None:
    assert brickd("-h").stdout == brickd("--help").stdout
    for verb in VERBS:
        helped = brickd(verb, "-h")
        assert (helped.returncode, helped.stderr) == (0, "")
        assert helped.stdout.startswith(f"Usage: brickd {verb} ")


def test_an_unknown_worker_is_refused_with_similar_names(worker: Start) -> None:
    started(worker, BRICKD_SERVICE="api")
    for verb in ASKED:
        missing = brickd(verb, "apo/0")
        assert (missing.returncode, missing.stdout) == (4, "")
        assert missing.stderr == "brickd: no worker or service apo/0: did you mean api/0? (brickd status lists them)\n"


@pytest.mark.ci
@pytest.mark.usefixtures("prefix")
def test_without_workers_every_verb_names_the_next_command() -> None:
    for verb, rows in ASKED.items():
        screen = brickd(verb)
        assert (screen.returncode, screen.stdout, screen.stderr) == (0, NO_WORKERS + "\n", "")
        assert document(verb)[rows] == []
        assert brickd(verb, "-o", "csv").stdout == brickd(verb, "-o", "jsonl").stdout == ""


@pytest.mark.ci
def test_records_of_a_dead_worker_count(worker: Start) -> None:
    for _ in range(2):
        started(worker).kill()
    for verb in ("status", "bricks", "tree"):
        assert {row["count"] for row in document(verb)[ASKED[verb]]} == {200}
    assert {row["state"] for verb in ("workers", "hang") for row in document(*words(verb))[ASKED[verb]]} == {"died"}


@pytest.mark.ci
@pytest.mark.parametrize("verb", ASKED)
def test_a_closed_stdout_pipe_ends_every_verb_silently(worker: Start, verb: str) -> None:
    started(worker)
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-P", "-m", "brickd", *words(verb)]
    ended = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert ended.returncode == 0
    assert ended.stderr in ("", "watching for 0.01 s whether a worker moves\n")
