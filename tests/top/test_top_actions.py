"""What a key of `brickd top` orders from the daemon."""

from __future__ import annotations

import pytest

from brickd.top.actions import is_now
from brickd.top.frame import Frame
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


def test_before_the_first_answer_the_screen_is_about_now() -> None:
    assert is_now(State(), None)
