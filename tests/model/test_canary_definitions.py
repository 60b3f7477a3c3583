"""Definitions of canaries: what is accepted, and the files."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from brickd.errors import WrongQuestion
from brickd.model.canary_definitions import BYTES_MAX, FILES_MAX, CanaryDefinition, CanaryFiles
from brickd.shm import _reader


@pytest.fixture
def files(tmp_path: Path) -> CanaryFiles:
    return CanaryFiles(tmp_path / "canaries")


def content(**values: Any) -> bytes:
    return json.dumps({"tokens": [1, 2]} | values).encode()


def test_a_canary_is_added_listed_replaced_and_removed(files: CanaryFiles) -> None:
    assert files.all() == ([], [])
    files.add("b", content())
    files.add("a", content(forced=[3], chunk=2))
    assert files.all() == ([CanaryDefinition("a", (1, 2), (3,), 2), CanaryDefinition("b", (1, 2))], [])
    files.add("b", content(tokens=[9]))
    files.remove("a")
    assert files.all() == ([CanaryDefinition("b", (9,))], [])
    with pytest.raises(WrongQuestion, match=r"no canary a "):
        files.remove("a")


def test_a_file_belongs_to_its_owner_alone_and_its_digest_is_of_its_bytes(files: CanaryFiles) -> None:
    added = files.add("a", content())
    path = files.directory / "a.json"
    assert (path.stat().st_mode & 0o777, files.directory.stat().st_mode & 0o777) == (0o600, 0o700)
    assert added.digest == _reader.source_hash(path.read_bytes()) >> 32
    assert added.digest != files.add("b", content()).digest


@pytest.mark.parametrize(
    "wrong",
    [
        b"",
        b"[]",
        b"{",
        b"{}",
        content(tokens=[]),
        content(tokens=[-1]),
        content(tokens=[2**31]),
        content(tokens=[True]),
        content(tokens=["1"]),
        content(tokens=5),
        content(forced=None),
        content(chunk=0),
        content(chunk=65),
        content(chunk=1.5),
        content(more=1),
        content(name="other"),
        content() + b" " * BYTES_MAX,
        b"[" * 9999,
    ],
)
def test_an_invalid_definition_is_refused(files: CanaryFiles, wrong: bytes) -> None:
    with pytest.raises(WrongQuestion, match=r"canary a: "):
        files.add("a", wrong)
    assert files.all() == ([], [])


@pytest.mark.parametrize("name", ["", ".hidden", "a/b", "..", "a b", "ä", "x" * 65, "-a"])
def test_an_invalid_name_is_refused(files: CanaryFiles, name: str) -> None:
    with pytest.raises(WrongQuestion, match=r"name"):
        files.add(name, content())
    with pytest.raises(WrongQuestion, match=r"no canary"):
        files.remove(name)


def test_the_largest_values_are_accepted(files: CanaryFiles) -> None:
    assert files.add("x" * 64, content(tokens=[0, 2**31 - 1], chunk=64)).chunk == 64


def test_there_are_at_most_64_canaries_and_each_can_be_replaced(files: CanaryFiles) -> None:
    for number in range(FILES_MAX):
        files.add(f"n{number}", content())
    with pytest.raises(WrongQuestion, match=r"there are 64 canaries"):
        files.add("more", content())
    files.add("n5", content(tokens=[5]))
    assert len(files.all()[0]) == FILES_MAX


def test_a_file_that_was_changed_by_hand_or_is_of_another_name_is_reported(files: CanaryFiles) -> None:
    files.add("a", content())
    (files.directory / "b.json").write_bytes((files.directory / "a.json").read_bytes())
    (files.directory / "c.json").write_bytes(content())
    os.symlink("missing", files.directory / "d.json")
    found, wrong = files.all()
    assert [each.name for each in found] == ["a"]
    assert [each.partition(": ")[0][-6:] for each in wrong] == ["b.json", "c.json", "d.json"]
