"""The screen as text, one screen after another, without textual.

Owns: when each screen is made, which errors end a batch. Must not know: where it is written. Invariants: A screen has
all rows, and the same lines as on a small terminal. A batch that cannot show its first screen fails like the verb
`status`; after that, it continues, and the screens say what is wrong.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator

from brickd.query.queries import StatusQuery
from brickd.top import lines
from brickd.top.asker import Asker
from brickd.top.draw import draw
from brickd.top.header import Cells
from brickd.top.panel_rows import Look
from brickd.top.source import DocumentSource, Request
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

    Raises:
        BrickdError: the first screen has no data, for example because no worker has one of the names.
    """
    state = state._replace(all_rows=True)
    asker, size = Asker(source), Cells(width or _ENDLESS_WIDTH, None)
    trends: tuple[str, ...] = ()
    due = time.monotonic()
    for number in itertools.count(1):
        frame = asker.frame(state, trends)
        if frame.status.document is None:  # true for the first screen only: documents are kept
            source.answer(Request("status", StatusQuery(names=state.names)))  # raises the reason
        trends = tuple(draw(state, frame, size, look).trends)
        ends = time.monotonic() + state.interval  # the rates of hundreds of workers would take minutes
        for _ in trends:
            frame = asker.more(state, trends) or frame
            if time.monotonic() >= ends:
                break
        drawn = draw(state, frame, size, look)
        yield [lines.text(each).rstrip(" ") for each in drawn.lines]
        if number == count:
            return
        now = time.monotonic()
        due = max(due + state.interval, now)
        time.sleep(due - now)
