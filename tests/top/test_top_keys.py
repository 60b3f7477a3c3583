"""Each key of `brickd top`, pressed by textual's pilot, with a daemon and four live workers of two services."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import pytest
from conftest import Worker
from faults import Start
from running import Running, running
from verbs import LOSING, started

from brickd.top import lines
from brickd.top.keys import KEYS
from brickd.top.panels import PANELS
from brickd.top.poll import Poller
from brickd.top.source import LiveSource
from brickd.top.state import DAY, State

if TYPE_CHECKING:
    from textual.pilot import Pilot

    from brickd.top.app import TopApp

# gemm has more self time, and norm more total time; each turn of the worker adds to both
BUSY = """
import time
norm, gemm = brick.brick("norm", "norm"), brick.brick("gemm", "ffn")
while True:
    for _ in range(5):
        with norm:
            with gemm: time.sleep(0.001)
    pause()
"""
BEGIN = State(interval=0.5, period=None)
WORKERS = ["api", "api/0", "api/1", "api/2", "web", "web/0"]


class Pressed:
    """The screen under the pilot, the daemon, and the worker api/0."""

    def __init__(self, app: TopApp, pilot: Pilot[None], daemon: Running, first: Worker) -> None:
        self.app, self.pilot, self.daemon, self.first = app, pilot, daemon, first

    async def begin(self, **changes: object) -> None:
        """Show the screen as at its start, with some other choices."""
        self.app.state = BEGIN._replace(**changes)  # type: ignore[arg-type]
        self.app.post_message(self.app.ActionEnded(""))
        await self.until(lambda: self.app.frame is not None and self.app.frame.state.asks_like(self.app.state))
        # a daemon keeps nothing of a time before its start, and then the panel has no rows
        await self.until(lambda: self.rows("panel") or self.app.state.cursor is not None)

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)

    async def until(self, so: Callable[[], object]) -> None:
        while not so():
            await self.pilot.pause(0.02)

    @property
    def screen(self) -> list[str]:
        return [self.app.canvas.render_line(row).text.rstrip() for row in range(self.app.size.height)]

    def has(self, text: str) -> bool:
        return any(text in line for line in self.screen)

    def rows(self, of: str) -> list[str | None]:
        """Return the subjects of the rows of a list."""
        assert self.app.drawn is not None
        found = {name: each.keys for name, each in self.app.drawn.shown.lists.items()}
        return list(found.get(of, ()))  # type: ignore[call-overload]

    @property
    def selected(self) -> list[str]:
        """Return the lines that are drawn as selected."""
        assert self.app.drawn is not None
        drawn = self.app.drawn.lines
        return [lines.text(each) for each in drawn if each and all(part.style == "selected" for part in each)]

    @property
    def over(self) -> object:
        """Return the period of the panel's document."""
        assert self.app.frame is not None
        document = self.app.frame.panel.document
        return "none" if document is None else document["over_ns"]


Expectation = Callable[[Pressed, str], Awaitable[None]]


async def moves(top: Pressed, key: str) -> None:
    await top.begin()
    rows = top.rows("panel")
    if key in ("up", "k", "pageup", "home"):
        await top.press("end")
    await top.press(key)
    assert top.app.drawn is not None
    height = top.app.drawn.shown.lists["panel"].height
    assert height < len(rows)
    end = len(rows) - 1
    at = {
        **{"down": 1, "j": 1, "up": end - 1, "k": end - 1, "home": 0, "end": end},
        **{"pagedown": height - 1, "pageup": end - (height - 1)},
    }[key]
    await top.until(lambda: len(top.selected) == 1 and top.selected[0].split()[0] == str(rows[at] or "…"))


async def goes_to_another_list(top: Pressed, key: str) -> None:
    await top.begin()
    await top.press(key)
    said = " 3 live " if key == "tab" else " api/2: raise BRICKD_"
    await top.until(lambda: len(top.selected) == 1 and said in top.selected[0])
    assert any(line.startswith("> WORKER") for line in top.screen) == (key == "tab")


async def chooses(top: Pressed, key: str) -> None:
    await top.begin()
    await top.press("tab", "down", key)
    await top.until(lambda: top.has("BRICKS of api/0, by self"))
    await top.until(lambda: set(top.rows("panel")) == {"norm", "gemm"})


async def goes_back(top: Pressed, key: str) -> None:
    await top.begin(subject="api/0", filter="gemm", cursor=None)
    await top.press(key)
    await top.until(lambda: top.has("BRICKS of api/0, by self") and not top.has("with gemm"))
    await top.press(key)
    await top.until(lambda: "n1" in top.rows("panel"))


async def opens(top: Pressed, key: str) -> None:
    (name,) = (name for name, panel in PANELS.items() if panel.key == key)
    await top.begin(panel="bricks" if name != "bricks" else "tree")
    await top.press(key)
    await top.until(lambda: any(line.startswith(f"> {name.upper()}") for line in top.screen))
    await top.until(lambda: top.app.frame is not None and top.app.frame.state.panel == name)
    assert top.app.frame is not None
    assert top.app.frame.panel.error is None
    assert (top.app.frame.panel.document is None) == (PANELS[name].view is None)


async def sorts(top: Pressed, key: str) -> None:
    await top.begin(subject="api/0")
    await top.until(lambda: top.rows("panel")[:2] == ["gemm", "norm"])
    await top.press(key)
    await top.until(lambda: top.has("by total") and top.rows("panel")[:2] == ["norm", "gemm"])
    await top.begin()
    assert top.rows("workers") == WORKERS
    await top.press("tab", key)  # by losses, which api/2 has
    await top.until(lambda: top.rows("workers") == ["api", "api/2", "api/0", "api/1", "web", "web/0"])


async def reverses(top: Pressed, key: str) -> None:
    await top.begin(subject="api/0")
    await top.until(lambda: top.rows("panel")[:2] == ["gemm", "norm"])
    await top.press(key)
    await top.until(lambda: top.has("by self, reversed") and top.rows("panel")[:2] == ["norm", "gemm"])


async def changes_the_period(top: Pressed, key: str) -> None:
    await top.begin()
    await top.until(lambda: top.over is None)
    await top.press(key)
    await top.until(lambda: isinstance(top.over, int) and top.over > 0)


async def changes_the_rates(top: Pressed, key: str) -> None:
    await top.begin()
    await top.until(lambda: top.has("SPANS/S, HOUR"))
    await top.press(key)
    await top.until(lambda: top.has("SPANS/S, DAY"))
    every = DAY / 12 * 1e9
    await top.until(
        lambda: top.app.frame is not None and {each["every_ns"] for each in top.app.frame.histories.values()} == {every}
    )


async def filters(top: Pressed, key: str) -> None:
    await top.begin()
    await top.press(key, "g", "e", "m")
    await top.until(lambda: top.screen[-1] == "filter: gem_")
    await top.until(lambda: top.rows("panel") == ["gemm"])
    await top.press("enter")
    await top.until(lambda: top.has("with gem") and top.screen[-1].startswith("? help"))


async def pauses(top: Pressed, key: str) -> None:
    def spans(now: str) -> bool:
        return any(line.split()[:1] == ["api/0"] and now in line.split() for line in top.screen)

    def counted() -> int:
        (worker,) = top.daemon.ask("/status?name=api/0")["workers"]
        count: int = worker["ledger"]["spans"]["summarized"]
        return count

    before = counted()
    await top.begin()
    await top.until(lambda: spans(str(before)))
    await top.until(lambda: top.app.frame is not None and len(top.app.frame.histories) == len(WORKERS))
    await top.press(key)
    await top.until(lambda: "PAUSED" in top.screen[0])
    screen, frame = top.screen, top.app.frame
    assert frame is not None
    top.app.post_message(top.app.Framed(frame._replace(newest=0.0)))  # an answer that was on its way
    top.first.go()
    top.first.paused()
    await top.until(lambda: counted() == before + 10)
    await top.press("?", "?")  # keys still change the screen
    await top.pilot.pause(3 * BEGIN.interval)
    assert (top.screen, top.app.frame) == (screen, frame)
    await top.press(key)
    await top.until(lambda: "PAUSED" not in top.screen[0] and spans(str(before + 10)))


async def picks(top: Pressed, key: str) -> None:
    await top.begin()
    await top.press("tab", "down", key)
    await top.until(lambda: top.has(" *  api/0"))
    await top.press(key)
    await top.until(lambda: not top.has("*  api/0"))


async def compares(top: Pressed, key: str) -> None:
    await top.begin()
    await top.press("tab", "down", "x", "end", "x", key)
    await top.until(lambda: top.has("> DIFF of api/0, web/0"))
    await top.until(lambda: any(line.split() == ["BRICK", "api/0", "web/0", "DIFFERENCE"] for line in top.screen))
    await top.until(lambda: {"gemm", "norm"} <= {line.split()[0] for line in top.screen if line})


async def turns_back(top: Pressed, key: str) -> None:
    await top.begin()
    assert top.app.drawn is not None
    before, seconds = top.app.drawn.shown.at, 10 if key == "left" else 300
    await top.press(key)
    cursor = top.app.state.cursor
    assert cursor is not None
    assert 0 <= cursor - (before - seconds) < 5  # a frame may have come in between
    await top.until(lambda: top.has(f"AT {time.strftime('%H:%M:%S', time.localtime(cursor))}"))
    await top.until(lambda: top.app.frame is not None and top.app.frame.state.cursor == cursor)


async def turns_forward(top: Pressed, key: str) -> None:
    cursor = time.time() - 1000
    await top.begin(cursor=cursor)
    await top.press(key)
    to = cursor + (10 if key == "right" else 300)
    await top.until(lambda: top.has(f"AT {time.strftime('%H:%M:%S', time.localtime(to))}"))
    await top.until(lambda: top.app.frame is not None and top.app.frame.state.cursor == to)


async def goes_to_now(top: Pressed, key: str) -> None:
    await top.begin(cursor=time.time() - 1000)
    await top.until(lambda: top.has("AT "))
    await top.press(key)
    await top.until(lambda: not top.has("AT ") and {"norm", "gemm"} <= set(top.rows("panel")))


async def marks(top: Pressed, key: str) -> None:
    at = time.time() - 1000
    await top.begin(cursor=at)
    await top.press("m", "n")
    await top.until(lambda: not top.has("AT "))
    await top.press("'")
    await top.until(lambda: top.has(f"AT {time.strftime('%H:%M:%S', time.localtime(at))}"))
    await top.press("'")
    await top.until(lambda: not top.has("AT "))


async def silences(top: Pressed, key: str) -> None:
    await top.begin(panel="problems")
    problem, other = dict.fromkeys(top.rows("panel"))

    def ids(of: str) -> list[str]:
        return [each["id"] for each in top.daemon.ask("/status")[of]]

    await top.press(key)
    await top.until(lambda: top.screen[-1].startswith(f"problem {problem} is silenced for 2h"))
    assert (ids("silenced"), ids("problems")) == ([problem], [other])
    await top.until(lambda: "1 PROBLEM, 1 silenced" in top.screen[0])
    await top.begin(panel="problems")
    await top.press("end", key)
    await top.until(lambda: top.screen[-1].startswith(f"problem {problem} is no longer silenced"))
    assert (ids("silenced"), set(ids("problems"))) == ([], {problem, other})
    await top.until(lambda: "2 PROBLEMS" in top.screen[0])


async def copies(top: Pressed, key: str) -> None:  # test_top_terminal.py reads what a terminal receives
    await top.begin(paused=True)
    await top.press("down", key)
    await top.until(lambda: top.screen[-1].startswith("copied: "))
    shown, copied = top.selected[0].split(), top.app.clipboard.split()
    assert copied[: len(shown) - 2] == shown[:-2]  # and then come the columns for which the screen is too narrow
    assert copied[-2:] == shown[-2:]


async def changes_the_interval(top: Pressed, key: str) -> None:
    await top.begin(interval=5.0)
    await top.press(key)
    wanted = 2.0 if key == "+" else 10.0
    await top.until(lambda: top.has(f"every {wanted:.0f}s"))
    await top.until(lambda: top.app.frame is not None and top.app.frame.state.interval == wanted)


async def helps(top: Pressed, key: str) -> None:
    await top.begin()
    await top.press(key)
    await top.until(lambda: top.has("> KEYS") and top.has("Tab, Shift-Tab"))
    await top.press(key)
    await top.until(lambda: not top.has("> KEYS") and top.has("> BRICKS"))


async def does_nothing_without_a_terminal(top: Pressed, key: str) -> None:  # test_top_terminal.py has one
    await top.begin()
    await top.press(key, "2")
    await top.until(lambda: top.has("> TREE"))


async def quits(top: Pressed, key: str) -> None:
    await top.press(key)
    assert top.app.return_code == 0


EXPECTED: dict[str, Expectation] = {
    **dict.fromkeys(("up", "down", "k", "j", "pageup", "pagedown", "home", "end"), moves),
    **dict.fromkeys(("tab", "shift+tab"), goes_to_another_list),
    "enter": chooses,
    "escape": goes_back,
    **dict.fromkeys("0123456789", opens),
    "s": sorts,
    "r": reverses,
    "o": changes_the_period,
    "h": changes_the_rates,
    "/": filters,
    "p": pauses,
    **dict.fromkeys(("x", "space"), picks),
    "d": compares,
    **dict.fromkeys(("left", "["), turns_back),
    **dict.fromkeys(("right", "]"), turns_forward),
    "n": goes_to_now,
    **dict.fromkeys(("m", "'"), marks),
    "S": silences,
    **dict.fromkeys(("c", "y"), copies),
    **dict.fromkeys(("+", "-"), changes_the_interval),
    "?": helps,
    **dict.fromkeys(("ctrl+l", "ctrl+z"), does_nothing_without_a_terminal),
    **dict.fromkeys(("q", "ctrl+c"), quits),
}


def test_each_key_has_an_expectation() -> None:
    assert set(EXPECTED) == {name for key in KEYS for name in key.keys}


@pytest.mark.ci
def test_each_key_does_what_its_help_says(worker: Start) -> None:
    first = started(worker, BUSY, BRICKD_SERVICE="api", BRICKD_WORKER="0")
    started(worker, BUSY, BRICKD_SERVICE="api", BRICKD_WORKER="1")
    started(worker, LOSING, BRICKD_SERVICE="api", BRICKD_WORKER="2")
    started(worker, BUSY, BRICKD_SERVICE="web", BRICKD_WORKER="0")
    with running() as daemon:
        daemon.once("/status", lambda status: len(status["problems"]) == 2)  # of names and of lanes
        asyncio.run(_drive([key for key in EXPECTED if EXPECTED[key] is not quits] + ["q"], daemon, first))
        asyncio.run(_drive(["ctrl+c"], daemon, first))


async def _drive(keys: list[str], daemon: Running, first: Worker) -> None:
    from brickd.top.app import TopApp

    poller = Poller(LiveSource(), BEGIN)
    poller.start()
    app = TopApp(poller, BEGIN)
    async with app.run_test(size=(120, 40)) as pilot:
        top = Pressed(app, pilot, daemon, first)
        await top.until(lambda: app.frame is not None)
        for key in keys:
            try:
                async with asyncio.timeout(60):
                    await EXPECTED[key](top, key)
            except BaseException as error:
                error.add_note(f"the key was {key}; the screen is\n" + "\n".join(top.screen))
                raise
