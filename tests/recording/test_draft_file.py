"""A file that gets its name when it is complete."""

from __future__ import annotations

from pathlib import Path

import pytest

from brickd.base.draft_file import name_draft


def test_a_draft_gets_its_name(tmp_path: Path) -> None:
    draft, path = tmp_path / "draft", tmp_path / "named"
    draft.write_text("complete")
    name_draft(draft, path)
    assert path.read_text() == "complete"
    assert not draft.exists()


def test_an_existing_file_is_not_overwritten(tmp_path: Path) -> None:
    draft, path = tmp_path / "draft", tmp_path / "named"
    draft.write_text("new")
    path.write_text("old")
    with pytest.raises(FileExistsError):
        name_draft(draft, path)
    assert (path.read_text(), draft.read_text()) == ("old", "new")
    name_draft(draft, path, replace=True)
    assert path.read_text() == "new"


def test_a_draft_that_has_gone_leaves_no_empty_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        name_draft(tmp_path / "draft", tmp_path / "named")
    assert list(tmp_path.iterdir()) == []
