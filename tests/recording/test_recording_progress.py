"""The progress that a terminal shows while a recording is read."""

from __future__ import annotations

import os
import pty
import sys
import termios
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from tapes import forged

from brickd.cli import ask, progress
from brickd.model.survey_snapshot import Snapshot
from brickd.model.workers import Survey
from brickd.query.queries import DiffQuery, EventsQuery
from brickd.recording import body_codec
from brickd.recording.body_codec import RecordingCounts
from brickd.shm import _reader
from brickd.views import diff_operands, fetch_answer

SNAPSHOT = body_codec.snapshot(Snapshot(1, 1, Survey([], [])), None, RecordingCounts())


@pytest.fixture
def file(tmp_path: Path) -> str:
    """Make a recording that is long enough to show progress."""
    path = tmp_path / "run.brick"
    path.write_bytes(forged([(_reader.CHUNK_EVENTS, 1, bytes(3 << 19)), (_reader.CHUNK_SNAPSHOT, 2, SNAPSHOT)]))
    return os.fspath(path)


def on_terminal(columns: int, monkeypatch: pytest.MonkeyPatch, show: Callable[[], object]) -> str:
    """Return the output on a terminal of this width."""
    test_end, terminal_end = pty.openpty()
    tty.setraw(terminal_end)
    termios.tcsetwinsize(terminal_end, (24, columns))
    with os.fdopen(terminal_end, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        show()
        os.set_blocking(test_end, False)
        reported = b""
        with suppress(BlockingIOError):
            while piece := os.read(test_end, 4096):
                reported += piece
    os.close(test_end)
    return reported.decode()


def test_a_terminal_shows_the_progress_of_reading(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_PATIENCE_SECONDS", 0.0)
    answer = on_terminal(200, monkeypatch, lambda: ask.asked("events", EventsQuery(), recordings=[file]))
    size = os.path.getsize(file)
    assert answer.startswith(f"\rreading {file}: 1.5M of {size / 2**20:.1f}M\x1b[K\r\x1b[Kbrickd: ")


def test_a_terminal_of_unknown_width_has_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    assert on_terminal(0, monkeypatch, lambda: progress.show("x" * 100)) == f"\r{'x' * 78}…\x1b[K"


def test_without_a_terminal_no_progress_is_shown(
    file: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "_PATIENCE_SECONDS", 0.0)
    ask.asked("events", EventsQuery(), recordings=[file])
    out, err = capfd.readouterr()
    assert (out, "\r" in err, "reading" in err) == ("", False, False)


def test_suppressing_progress_gives_the_same_answer_and_prints_nothing(
    file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_PATIENCE_SECONDS", 0.0)
    reported: list[tuple[str, int, int]] = []

    @contextmanager
    def reading() -> Iterator[fetch_answer.Reads]:
        yield lambda path, at, of: reported.append((path, at, of))

    answer = fetch_answer.find("events", EventsQuery(), recordings=[file], reading=reading)
    size = os.path.getsize(file)
    assert reported
    assert all(each[0::2] == (file, size) and 0 < each[1] <= size for each in reported)
    untold: list[fetch_answer.FetchedAnswer] = []

    def asked_quietly() -> None:
        untold.append(fetch_answer.find("events", EventsQuery(), recordings=[file]))
        diff_operands.find(DiffQuery((file,)))

    assert on_terminal(80, monkeypatch, asked_quietly) == ""
    assert untold == [answer]
