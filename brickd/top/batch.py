"""The screen as text, one screen after another, without textual.

Owns: when each screen is made. Must not know: where it is written. Invariant: a screen has all rows, and the same lines
as on a terminal.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator

from brickd.top import lines
from brickd.top.draw import Cells, draw
from brickd.top.panels import Look
from brickd.top.poll import Asker
from brickd.top.source import DocumentSource
from brickd.top.state import State

_ENDLESS_WIDTH = 200  # for a pipe: no line of a table is cut, unless a name is very long


def screens(
    source: DocumentSource, state: State, count: int | None, width: int | None, look: Look
) -> Iterator[list[str]]:
    """Yield the lines of one screen after another, one per interval.

    Args:
        source: where the documents come from.
        state: what is shown.
        count: the number of screens; None: without an end.
        width: the width of a line; None for a pipe.
        look: colours are never used.
    """
    asker, size = Asker(source), Cells(width or _ENDLESS_WIDTH, None)
    trends: tuple[str, ...] = ()
    due = time.monotonic()
    for number in itertools.count(1):
        frame = asker.frame(state, trends)
        trends = tuple(draw(state, frame, size, look).trends)
        while (more := asker.more(state, trends)) is not None:
            frame = more
        drawn = draw(state, frame, size, look)
        yield [lines.text(each).rstrip(" ") for each in drawn.lines]
        if number == count:
            return
        now = time.monotonic()
        due = max(due + state.interval, now)
        time.sleep(due - now)
