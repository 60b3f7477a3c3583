"""Recordings that lie with the daemon: known by their titles, bounded, left alone while they are written."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from running import running
from test_recording_files import recorded
from verbs import brickd

from brickd.base.paths import runtime
from brickd.errors import BrickdError
from brickd.recording.chunks import open_recording
from brickd.recording.library import ROOM, Shelf
from brickd.recording.rotation import Volumes


def shelf() -> Shelf:
    """The daemon's."""
    return Shelf(runtime().recordings)


def lying(**order: int) -> Path:
    """A recording that nobody has fetched: its first file."""
    return recorded(shelf().place(), **order).path


def id_of(path: Path) -> str:
    """The recording that a file belongs to."""
    with open_recording(str(path)) as form:
        return form.title.id.hex()


@contextmanager
def written(path: Path) -> Iterator[Volumes]:
    """Files of a recording that is being made."""
    volumes = Volumes(path, 1 << 20, 2)
    try:
        yield volumes
    finally:
        volumes.end(b"{}")


def test_what_lies_there_is_known_by_its_titles_whatever_it_is_called(prefix: str) -> None:
    first, second = lying(), lying()
    renamed = first.with_name("anything.brick")
    first.rename(renamed)
    for name, content in (("none.brick", b"no recording"), ("empty.brick", b""), ("other", second.read_bytes())):
        (runtime().recordings / name).write_bytes(content)
    (runtime().recordings / "link.brick").symlink_to(second)
    os.mkfifo(runtime().recordings / "fifo.brick")
    assert [(each.recording, [file.path for file in each.files]) for each in shelf().all()] == [
        (id_of(renamed), [renamed]),
        (id_of(second), [second]),
    ]


def test_what_is_being_written_is_given_to_nobody_and_never_removed(prefix: str) -> None:
    with written(shelf().place()) as volumes:
        assert volumes.next()
        volumes.close_last_but_one(b"{}")
        recording = volumes.id.hex()
        later = [lying() for _ in range(ROOM + 1)]
        for refused in (shelf().find, lambda which: shelf().open(which, 0), lambda which: shelf().remove(which, 0)):
            with pytest.raises(BrickdError, match="is still being written"):
                refused(recording)
        assert [each.files[0].path for each in shelf().make_room()] == later[:1]
        assert [each.written for each in shelf().all()] == [True] + ROOM * [False]
    assert len(shelf().find(recording).files) == 2


def test_a_writer_that_was_killed_has_locked_nothing(prefix: str) -> None:
    path = shelf().place()
    pid = os.fork()
    if pid == 0:
        Volumes(path, 1 << 20, 2)
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    assert shelf().find(id_of(path)).files[0].path == path


def test_what_nobody_fetched_is_told_by_the_doctor_with_a_daemon_or_without_one(prefix: str) -> None:
    def finding() -> tuple[str, str | None, list[str]]:
        said = json.loads(brickd("doctor", "--json").stdout)["findings"]
        (found,) = (each for each in said if each["name"] == "recordings")
        return found["state"], found["fix"], found["about"]

    assert finding()[0] == "ok"
    first, second = id_of(lying()), id_of(lying())
    told = ("advice", f"brickd record --fetch {second}", [first, second])
    with written(shelf().place()):
        assert finding() == told
        with running(), pytest.MonkeyPatch.context() as patch:
            patch.setenv("BRICKD_STATE_DIR", "/nowhere")  # of the daemon's own we know nothing
            assert finding() == told


def test_the_oldest_goes_as_a_new_one_begins_and_that_is_told(tmp_path: Path, prefix: str) -> None:
    every = [lying() for _ in range(ROOM)]
    with running() as daemon:
        assert brickd("record", "--duration", "0.01", "-o", str(tmp_path / "run.brick")).returncode == 0
        told = daemon.until("recording_removed")
        assert str(every[0]) in told["text"]
    assert sorted(runtime().recordings.iterdir()) == sorted(every[1:])
