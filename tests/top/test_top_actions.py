"""What a key of `brickd top` orders from the daemon."""

from __future__ import annotations

import pytest
from faults import Start
from top_screens import PLAIN, Top
from verbs import started

from brickd.top.actions import is_now, whole_row
from brickd.top.frame import Frame
from brickd.top.header import Cells
from brickd.top.places import OnScreen, ShownList
from brickd.top.state import State


@pytest.mark.parametrize(
    ("cursor", "recorded", "now"),
    [(None, False, True), (None, True, False), (100.0, False, False), (100.0, True, False)],
)
def test_a_problem_of_a_recording_or_of_a_past_time_is_not_silenced(
    cursor: float | None, recorded: bool, now: bool
) -> None:
    state = State(cursor=cursor)
    assert is_now(state, Frame(state, recorded=recorded)) is now


NAMES = """
for number in range(2):
    with brick.brick(f"model.decoder.layers.self_attention.q_proj.{number}"): pass
pause()
"""


def test_a_copied_row_has_what_the_width_of_the_screen_cuts(worker: Start) -> None:
    started(worker, NAMES, BRICKD_SERVICE="api")
    top = Top(size=Cells(40, 24))
    top.press("down")
    shown = top.drawn.shown
    name = shown.lists["panel"].selected
    copied = whole_row(top.state, top.frame, shown, PLAIN)
    assert name is not None
    assert (name in top.text, copied.split("  ")[0]) == (False, name)
    assert len(copied.split("  ")) > 5  # all columns
    top.press("tab", "down")
    copied = whole_row(top.state, top.frame, top.drawn.shown, PLAIN)
    assert copied.startswith("api/0  live  ")
    assert "   " not in copied


def test_a_copied_problem_has_its_whole_text_and_its_next_command(worker: Start) -> None:
    started(worker, NAMES, BRICKD_SERVICE="api").kill()
    top = Top(size=Cells(30, 24))
    top.press("tab", "tab")
    assert top.state.focus == "problems"
    copied = whole_row(top.state, top.frame, top.drawn.shown, PLAIN)
    assert "…" not in copied
    assert "brickd " in copied


LANES = """
import threading
ready = threading.Barrier(3)
def hold(name):
    with brick.brick(name):
        ready.wait()
        threading.Event().wait()
for name in ("prefill", "decode"):
    threading.Thread(target=hold, args=(name,), daemon=True).start()
ready.wait()
pause()
"""


def test_of_a_subject_with_several_rows_the_selected_one_is_copied(worker: Start) -> None:
    started(worker, LANES, BRICKD_SERVICE="api")
    top = Top(state=State(panel="hang"))
    copied = []
    for _ in range(2):
        copied.append(whole_row(top.state, top.frame, top.drawn.shown, PLAIN))
        top.press("down")
    assert {next(name for name in ("prefill", "decode") if name in row) for row in copied} == {"prefill", "decode"}
    assert not any("prefill" in row and "decode" in row for row in copied)


def test_a_row_without_a_subject_is_copied_as_it_is_shown(worker: Start) -> None:
    started(worker, NAMES, BRICKD_SERVICE="api")
    top = Top(state=State(panel="problems"), size=Cells(60, 24))
    rows = top.drawn.shown.lists["panel"].texts
    assert whole_row(top.state, top.frame, top.drawn.shown, PLAIN) in rows
    nothing = OnScreen({"panel": ShownList()})
    assert [whole_row(State(), top.frame, each, PLAIN) for each in (nothing, OnScreen({}))] == ["", ""]


def test_before_the_first_answer_the_screen_is_about_now() -> None:
    assert is_now(State(), None)
