"""`brickd top` keeps no memory from one screen to the next."""

from __future__ import annotations

import gc
import json
import sys

import pytest
from faults import Start
from top_screens import PLAIN, TERMINAL
from verbs import SPANS, started

from brickd.top.asker import Asker
from brickd.top.draw import draw
from brickd.top.source import LiveSource, Request
from brickd.top.state import State
from brickd.views.fetch_answer import FetchedAnswer

DAY = 86_400  # screens in a day, one per second
GROWTH_BLOCKS_MAX = 1_000  # for any number of screens: a value kept for each of a day's would be more


class Repeating(LiveSource):
    """This machine, of which each answer is kept as text and read again."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: dict[str, str] = {}

    def answer(self, request: Request) -> FetchedAnswer:
        if request.view not in self.texts:
            self.texts[request.view] = json.dumps(super().answer(request).document)
        return FetchedAnswer(json.loads(self.texts[request.view]), ())


@pytest.mark.parametrize(
    "ticks",
    [
        pytest.param(200, marks=pytest.mark.ci),
        pytest.param(DAY, marks=[pytest.mark.nightly, pytest.mark.timeout(890)]),
    ],
)
def test_screens_keep_no_memory(worker: Start, ticks: int) -> None:
    started(worker, SPANS, BRICKD_SERVICE="api")
    asker, state = Asker(Repeating()), State()

    def run(count: int) -> int:
        for _ in range(count):
            frame = asker.frame(state, ("api", "api/0"))
            drawn = draw(state, frame, TERMINAL, PLAIN)
            asker.more(state, drawn.trends)
        assert (frame.status.error, frame.panel.error) == (None, None)
        assert drawn.trends == ["api", "api/0"]
        gc.collect()
        return sys.getallocatedblocks()

    before = run(50)
    assert run(ticks) - before < GROWTH_BLOCKS_MAX
