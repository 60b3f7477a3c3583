"""Recordings that the daemon stores: it finds them by their titles, limits their number, and never removes one that is
being written.
"""

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
from brickd.base.timestamps import rfc3339
from brickd.errors import BrickdError
from brickd.recording.chunks import open_recording
from brickd.recording.library import ROOM, Shelf
from brickd.recording.rotation import Volumes
from brickd.shm import _reader


def shelf() -> Shelf:
    """Return the recordings that the daemon stores."""
    return Shelf(runtime().recordings)


def stored_recording(**order: int) -> Path:
    """Make a recording that no command fetches; return its first file."""
    return recorded(shelf().place(), **order).path


def id_of(path: Path) -> str:
    """Return the id of the recording to which a file belongs."""
    with open_recording(str(path)) as form:
        return form.title.id.hex()


@contextmanager
def written(path: Path) -> Iterator[Volumes]:
    """Return the files of a running recording."""
    volumes = Volumes(path, 1 << 20, 2)
    try:
        yield volumes
    finally:
        volumes.end(b"{}")


def test_stored_recordings_are_identified_by_their_titles(prefix: str) -> None:
    first, second = stored_recording(), stored_recording()
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


def test_a_recording_in_progress_is_neither_served_nor_removed(prefix: str) -> None:
    with written(shelf().place()) as volumes:
        assert volumes.next()
        volumes.close_last_but_one(b"{}")
        recording = volumes.id.hex()
        later = [stored_recording() for _ in range(ROOM + 1)]
        for refused in (shelf().find, lambda which: shelf().open(which, 0), lambda which: shelf().remove(which, 0)):
            with pytest.raises(BrickdError, match="is still being written"):
                refused(recording)
        assert [each.files[0].path for each in shelf().make_room()] == later[:1]
        assert [each.written for each in shelf().all()] == [True] + ROOM * [False]
    assert len(shelf().find(recording).files) == 2


def test_a_killed_writer_leaves_no_lock(prefix: str) -> None:
    path = shelf().place()
    pid = os.fork()
    if pid == 0:
        Volumes(path, 1 << 20, 2)
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    assert shelf().find(id_of(path)).files[0].path == path


@pytest.mark.ci
def test_doctor_reports_unfetched_recordings_with_or_without_a_daemon(prefix: str) -> None:
    def finding() -> tuple[str, str | None, list[str]]:
        answer = json.loads(brickd("doctor", "--json").stdout)["findings"]
        (found,) = (each for each in answer if each["name"] == "recordings")
        return found["state"], found["fix"], found["about"]

    assert finding()[0] == "ok"
    first, second = id_of(stored_recording()), id_of(stored_recording())
    reported = ("advice", f"brickd record --fetch {second}", [first, second])
    with written(shelf().place()):
        assert finding() == reported
        with running(), pytest.MonkeyPatch.context() as patch:
            patch.setenv("BRICKD_STATE_DIR", "/nowhere")  # this process does not know the daemon's directory
            assert finding() == reported


@pytest.mark.ci
def test_a_new_recording_removes_the_oldest_and_reports_it(tmp_path: Path, prefix: str) -> None:
    every = [stored_recording() for _ in range(ROOM)]
    with running() as daemon:
        assert brickd("record", "--duration", "0.01", "-o", str(tmp_path / "run.brick")).returncode == 0
        reported = daemon.until("recording_removed")
        assert str(every[0]) in reported["text"]
    assert sorted(runtime().recordings.iterdir()) == sorted(every[1:])


def file_of(folder: Path, name: str, recording: int, number: int, made_ns: int, length: int = 0) -> Path:
    """Make a file of a recording with this title."""
    path = folder / name
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    made = _reader.Recording(fd, 1 << 20, bytes([recording] * 16), made_ns, number)
    made.append(_reader.CHUNK_EVENTS, 1, bytes(length))
    made.close()
    os.close(fd)
    return path


def test_files_are_found_by_recording_and_number_in_order_of_creation(tmp_path: Path) -> None:
    here = Shelf(tmp_path)
    eleventh, second = (file_of(tmp_path, f"{n}.brick", 1, n, 500 + n, 999 * n) for n in (10, 1))
    older = file_of(tmp_path, "z.brick", 2, 7, 400)
    one, other = (bytes([n] * 16).hex() for n in (1, 2))
    found = here.all()
    assert [(each.recording, [file.number for file in each.files]) for each in found] == [(other, [7]), (one, [1, 10])]
    assert found[1].document() == {
        "recording": one,
        "made": rfc3339(501),
        "bytes": second.stat().st_size + eleventh.stat().st_size,
        "written": False,
        "files": [
            {"path": str(path), "number": n, "bytes": path.stat().st_size} for n, path in ((1, second), (10, eleventh))
        ],
    }
    for number, path in ((1, second), (10, eleventh)):
        with open(here.open(one, number), "rb") as file:
            assert file.read() == path.read_bytes()
    for refused in (here.open, here.remove):
        with pytest.raises(BrickdError, match=f"recording {one} has no file 7, expected 1 to 10"):
            refused(one, 7)
        with pytest.raises(BrickdError, match="no recording none in"):
            refused("none", 1)
    here.remove(one, 1)
    assert sorted(tmp_path.iterdir()) == [eleventh, older]
    assert here.find(one).made_ns == 510


@pytest.mark.parametrize("many", [0, ROOM - 1, ROOM, ROOM + 1, ROOM + 3])
def test_the_oldest_recordings_over_the_limit_are_removed(tmp_path: Path, many: int) -> None:
    files = [file_of(tmp_path, f"{n}.brick", n, 0, 100 - n) for n in range(many)]  # the last file is the oldest
    removed = Shelf(tmp_path).make_room()
    assert [each.files[0].path for each in removed] == files[ROOM:][::-1]
    assert sorted(tmp_path.iterdir()) == sorted(files[:ROOM])


def test_a_missing_directory_is_empty_and_an_impossible_one_names_the_variable(tmp_path: Path) -> None:
    here = Shelf(tmp_path / "a" / "b")
    assert (here.all(), here.make_room()) == ([], [])
    assert not (tmp_path / "a").exists()
    first = here.place()
    assert (first.parent, first.parent.stat().st_mode & 0o777, first.suffix) == (tmp_path / "a" / "b", 0o700, ".brick")
    assert here.place() != first
    (tmp_path / "file").touch()
    with pytest.raises(BrickdError, match=r"Not a directory \(set BRICKD_STATE_DIR to a directory of yours\)"):
        Shelf(tmp_path / "file" / "b").place()
