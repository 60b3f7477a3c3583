"""`brickd top` with 256 workers, and with 10,000 bricks."""

from __future__ import annotations

import pytest
from faults import Start
from top_screens import Top
from verbs import started

from brickd.top import lines
from brickd.top.header import Cells

FORKED, BRICKS = 255, 10_000
# Each child ends when its parent does, because the pipe is closed then.
FLEET = f"""
import os
recorded, records = os.pipe()
parent, lives = os.pipe()
with brick.span("gemm"): pass
for _ in range({FORKED}):
    if os.fork() == 0:
        os.close(lives)
        with brick.span("gemm"): pass
        os.write(records, b".")
        os.read(parent, 1)
        os._exit(0)
for _ in range({FORKED}): os.read(recorded, 1)
pause()
"""
MANY_BRICKS = f"""
for number in range({BRICKS}):
    with brick.span(f"brick.{{number:05}}"): pass
pause()
"""


def fits(top: Top, size: Cells) -> None:
    """Draw the screen at another size, and check that it has exactly this size."""
    top.size = size
    top.draw()
    assert len(top.drawn.lines) == size.height
    assert max(lines.width(line) for line in top.drawn.lines) <= size.width


@pytest.mark.nightly
def test_the_last_of_256_workers_and_of_10_000_bricks_can_be_reached(worker: Start) -> None:
    started(worker, FLEET, BRICKD_SERVICE="api")
    started(worker, MANY_BRICKS, BRICKD_SERVICE="big", BRICKD_PATHS="16384", BRICKD_NAMES="16384")
    top = Top()
    assert "256 live" in top.text
    assert f"of {FORKED + 1 + 1 + 2}" in top.text, "the title of the workers counts both services and all workers"
    top.press("tab", "end")
    assert any(line.split()[:2] == ["big/0", "live"] for line in top.lines)
    top.press("enter", "1")
    top.state = top.state._replace(filter="brick.09999")
    top.ask()
    assert [line.split()[0] for line in top.lines if line.startswith("brick.0")] == ["brick.09999"]
    for size in (Cells(20, 10), Cells(200, 50), Cells(80, 24)):
        fits(top, size)
