"""The user gives a file where a recording or a worker is expected. If the file is not a recording, the message says
what it is.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from faults import Start
from verbs import brickd, started

from brickd.recording.mistaken_files import named_files, what_it_is
from brickd.recording.rotation import MAGIC


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(os.fspath(path))


FILES: dict[str, Callable[[Path], object]] = {
    "a text file": lambda path: path.write_text("import brick_agent\n"),
    "a binary file": lambda path: path.write_bytes(b"\x7fELF\0"),
    "an empty file": lambda path: path.touch(),
    "a directory": lambda path: path.mkdir(),
    "a pipe": os.mkfifo,
    "a socket": _socket,
    "a recording": lambda path: path.write_bytes(MAGIC),
}


@pytest.mark.parametrize("name", ["x", "x.brick"])
@pytest.mark.parametrize("kind", FILES)
def test_each_kind_of_file_is_recognised(tmp_path: Path, kind: str, name: str) -> None:
    FILES[kind](tmp_path / name)
    assert what_it_is(str(tmp_path / name)) == kind


def test_a_text_file_cut_within_a_character_is_text(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("x" * 1023 + "ß" * 9)
    assert what_it_is(str(tmp_path / "x")) == "a text file"
    (tmp_path / "x").write_bytes(b"\xff\xfe\xfd\xfc" * 9)
    assert what_it_is(str(tmp_path / "x")) == "a binary file"


@pytest.mark.parametrize("word", ["", "not-there", "not/there", "x\0y", "x" * 5000])
def test_a_word_that_is_no_path_has_no_kind(word: str) -> None:
    assert what_it_is(word) is None
    assert named_files([None, word]) == ""


@pytest.mark.parametrize("verb", ["status", "workers", "inspect", "diff", "hang", "weights"])
def test_a_file_that_is_not_a_recording_is_refused_with_its_kind(worker: Start, tmp_path: Path, verb: str) -> None:
    started(worker)
    path = tmp_path / "night.txt"
    path.write_text("notes")
    refused = brickd(verb, str(path))
    assert (refused.returncode, refused.stdout) == (4, "")
    assert refused.stderr.startswith(
        f"brickd: {path} is a text file, expected a recording (brickd record -o FILE): no worker"
    )


def test_a_file_given_to_events_is_refused_with_its_kind(tmp_path: Path) -> None:
    (tmp_path / "night.txt").write_text("notes")
    refused = brickd("events", str(tmp_path / "night.txt"))
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "night.txt is a text file, expected a recording (brickd record -o FILE): unexpected" in refused.stderr
    assert "night.txt (see brickd events --help)" in refused.stderr
    only = "unexpected argument api, expected only recordings (brickd record -o FILE writes one) (see"
    assert only in brickd("events", "api").stderr


def test_a_verb_that_takes_no_recordings_expects_none(worker: Start, tmp_path: Path) -> None:
    started(worker)
    (tmp_path / "run.brick").write_bytes(MAGIC)
    refused = brickd("prune", str(tmp_path / "run.brick"))
    assert refused.stderr.startswith(f"brickd: no worker or service {tmp_path / 'run.brick'}: ")


@pytest.mark.parametrize("arguments", [("spans",), ("export", "-f", "csv", "-o", "-")])
def test_a_verb_that_needs_a_recording_says_what_the_file_is(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    path = tmp_path / "night.txt"
    path.write_text("notes")
    refused = brickd(*arguments, str(path))
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.startswith(
        f"brickd: {path} is a text file, expected a recording (brickd record -o FILE): no recording is given, "
    )


def test_a_file_with_the_name_of_a_worker_is_not_in_its_way(
    worker: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started(worker, BRICKD_SERVICE="api")
    monkeypatch.chdir(tmp_path)
    Path("api").mkdir()
    assert brickd("status", "api").returncode == 0
    assert "a directory" not in brickd("status", "nobody").stderr


def test_the_name_of_a_recording_that_does_not_exist_is_no_recording(tmp_path: Path) -> None:
    missing = tmp_path / "nope.brick"
    assert what_it_is(str(missing)) == "the name of a recording, but there is no such file"
    refused = brickd(str(missing))
    assert refused.returncode == 2
    assert (
        f"No such command '{missing}'. It is the name of a recording, but there is no such file:"
        " `brickd record -o FILE` writes one (see" in refused.stderr
    )


def test_a_file_with_the_name_of_a_verb_does_not_hide_the_verb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("logs").touch()
    assert "Did you mean `events`? It is also an empty file: `brickd run -- CMD` measures" in brickd("logs").stderr


def test_a_path_is_not_compared_with_the_names_of_verbs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x.brick").write_bytes(MAGIC)
    assert "No such command 'x.brick'. It is a recording: brickd status x.brick (see" in brickd("x.brick").stderr


def test_a_file_given_as_a_verb_is_refused_with_its_kind(tmp_path: Path) -> None:
    recording, program = tmp_path / "run.brick", tmp_path / "server.py"
    recording.write_bytes(MAGIC)
    program.write_text("import os")
    assert f"No such command '{recording}'. It is a recording: brickd status {recording} (see" in (
        brickd(str(recording)).stderr
    )
    assert f"No such command '{program}'. It is a text file: `brickd run -- CMD` measures a program (see" in (
        brickd(str(program)).stderr
    )
