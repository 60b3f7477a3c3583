"""`brickd top --batch`: the screens as text, for a person and for a script."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest
from conftest import SHM
from faults import Start
from timed_recordings import timed
from verbs import LOSING, brickd, started

from brickd.shm.segment_files import find
from brickd.top.batch import screens
from brickd.top.panel_rows import Look
from brickd.top.source import LiveSource, Request
from brickd.top.state import State
from brickd.views.fetch_answer import FetchedAnswer

PLAIN = Look(colour=False)


@pytest.mark.usefixtures("prefix")
def test_a_batch_goes_on_at_once_if_the_answers_take_longer_than_the_interval() -> None:
    # no answer comes within an interval of no length
    found = [*screens(LiveSource(), State(interval=0.0), 3, None, PLAIN)]
    assert [screen[0].startswith("brickd top  no workers  ") for screen in found] == [True] * 3
    assert found[0][1] == "> BRICKS, by self"  # a list without workers has no title


def test_a_batch_about_an_unknown_name_fails_like_other_verbs(worker: Start) -> None:
    started(worker, BRICKD_SERVICE="api")
    other, batch = brickd("workers", "none"), brickd("top", "-b", "-n", "1", "none")
    assert (batch.returncode, batch.stdout, batch.stderr) == (other.returncode, "", other.stderr)
    assert batch.returncode == 4


def test_a_batch_continues_after_its_first_screen_and_says_what_is_wrong(worker: Start, prefix: str) -> None:
    api = started(worker, BRICKD_SERVICE="api")
    found = screens(LiveSource(), State(names=("api",), interval=0.0), None, None, PLAIN)
    assert next(found)[0].startswith("brickd top  no problem  api")
    api.kill()
    for file in find(prefix):
        (SHM / file).unlink()
    started(worker, BRICKD_SERVICE="web")
    error = next(found)[1]
    assert error.startswith("! no worker or service api")
    assert error.endswith(" old")


def test_a_batch_has_the_whole_text_of_each_problem(worker: Start) -> None:
    started(worker, LOSING, BRICKD_SERVICE="api")
    for width in ("40", "200"):
        wanted = [*problem(brickd("status", COLUMNS=width).stdout)]
        assert any("…" not in line for line in wanted)
        assert [*problem(brickd("top", "-b", "-n", "1", COLUMNS=width).stdout)] == wanted


def problem(screen: str) -> list[str]:
    """Return the lines of the first problem."""
    lines = iter(screen.splitlines())
    first = next(line for line in lines if re.match("! [0-9a-f]{8} ", line))
    return [first, *itertools.takewhile(lambda line: line.startswith("  "), lines)]


def test_a_batch_has_all_bricks(worker: Start) -> None:
    started(
        worker,
        """
for number in range(401):
    with brick.span(f"n{number}"): pass
pause()
""",
        BRICKD_SERVICE="api",
    )
    shown = brickd("top", "-b", "-n", "1").stdout
    assert {line.split()[0] for line in shown.splitlines() if line.startswith("n")} == {f"n{n}" for n in range(401)}
    assert "more" not in shown


def test_a_batch_of_a_recording_shows_its_workers_and_ends(worker: Start, tmp_path: Path) -> None:
    started(worker, BRICKD_SERVICE="api")
    file = timed(tmp_path / "a.brick")
    shown = brickd("top", "-b", "-n", "1", file)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout.splitlines()[0].endswith("  recording")
    assert "  api/0" in {line[2:9].rstrip() for line in shown.stdout.splitlines()}


def test_a_batch_asks_for_rates_no_longer_than_its_interval(worker: Start) -> None:
    for _ in range(6):
        started(worker, BRICKD_SERVICE="api")
    asked: list[str] = []

    class Counting(LiveSource):
        def answer(self, request: Request) -> FetchedAnswer:
            asked.append(request.view)
            return super().answer(request)

    list(screens(Counting(), State(interval=0.0), 1, None, PLAIN))
    assert asked.count("history") == 2
    list(screens(Counting(), State(interval=60.0), 1, None, PLAIN))
    assert asked.count("history") == 2 + 7
