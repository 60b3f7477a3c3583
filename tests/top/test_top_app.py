"""`brickd top` in textual, driven by its pilot against real workers; and as a command."""

from __future__ import annotations

import asyncio
import os
import pty
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import click
import pytest
from faults import Start
from running import running
from verbs import brickd, started

from brickd.cli.top import _require_terminal
from brickd.top.poll import Poller
from brickd.top.source import LiveSource
from brickd.top.state import State

if TYPE_CHECKING:
    from textual.pilot import Pilot

    from brickd.top.app import TopApp

_REST_SECONDS = 0.02


def started_app(state: State) -> TopApp:
    from brickd.top.app import TopApp

    poller = Poller(LiveSource(), state)
    poller.start()
    return TopApp(poller, state)


async def until(pilot: Pilot[None], so: Callable[[], object]) -> None:
    """Let the screen work until a condition is true."""
    while not so():
        await pilot.pause(_REST_SECONDS)


def shown(app: TopApp) -> list[str]:
    """Return the lines that textual has drawn."""
    return [app.canvas.render_line(row).text.rstrip() for row in range(app.size.height)]


@pytest.mark.ci
def test_a_pilot_presses_keys_and_sees_their_screens(worker: Start) -> None:
    for _ in range(2):
        started(worker, BRICKD_SERVICE="api")
    app = started_app(State(interval=0.1))

    async def drive() -> None:
        async with app.run_test(size=(80, 24)) as pilot:
            await until(pilot, lambda: any(line.startswith("norm") for line in shown(app)))
            assert shown(app)[0].startswith("brickd top  no problem")
            await pilot.press("2")
            await until(pilot, lambda: "> TREE" in shown(app) and any("-- gemm" in line for line in shown(app)))
            await pilot.press("tab", "down", "enter")
            await until(pilot, lambda: "  TREE of api/0" in shown(app))
            await pilot.press("question_mark")
            await until(pilot, lambda: any("KEYS" in line for line in shown(app)))
            await pilot.press("escape", "p")
            await until(pilot, lambda: "PAUSED" in shown(app)[0])
            await pilot.resize_terminal(20, 10)
            await until(pilot, lambda: len(shown(app)) == 10)
            assert max(map(len, shown(app))) <= 20
            await pilot.press("c")
            await until(pilot, lambda: shown(app)[-1].startswith("copied: "))
            assert shown(app)[-1].removeprefix("copied: ").rstrip("…") in app.clipboard
            await pilot.press("q")

    asyncio.run(drive())
    assert app.return_code == 0


@pytest.mark.ci
def test_a_problem_is_silenced_and_its_silence_ended(worker: Start) -> None:
    with running() as daemon:
        started(worker, BRICKD_SERVICE="api").kill()
        daemon.until("worker_died")
        app = started_app(State(interval=0.1, panel="problems"))

        async def drive() -> None:
            async with app.run_test(size=(100, 24)) as pilot:
                await until(pilot, lambda: any(line.startswith("! ") for line in shown(app)))
                await pilot.press("S")
                await until(pilot, lambda: "is silenced for 2h" in shown(app)[-1])
                await until(pilot, lambda: "1 silenced" in shown(app)[0])
                await pilot.press("S")
                await until(pilot, lambda: "is no longer silenced" in shown(app)[-1])

        asyncio.run(drive())


def test_batches_are_printed_without_textual(worker: Start) -> None:
    started(worker, BRICKD_SERVICE="api")
    loaded = "textual" in sys.modules
    result = brickd("top", "-b", "-n", "2", "-d", "0.1", "api")
    assert (result.returncode, result.stderr) == (0, "")
    screens = result.stdout.split("\n\n")
    assert len(screens) == 2
    for screen in screens:
        lines = screen.splitlines()
        assert lines[0].startswith("brickd top  no problem  ")
        assert {"norm", "gemm"} <= {line.split()[0] for line in lines}
        assert not any(" │ " in line for line in lines)
    assert ("textual" in sys.modules) == loaded


def test_without_a_terminal_the_verb_names_the_option_for_batches() -> None:
    refused = brickd("top")
    assert refused.returncode == 2
    assert refused.stderr == "brickd: stdin and stdout are not a terminal: use --batch (see brickd top --help)\n"
    assert "--count needs --batch" in brickd("top", "-n", "3").stderr


@pytest.mark.parametrize("file", ["stdin", "stdout"])
def test_a_closed_file_is_no_terminal(monkeypatch: pytest.MonkeyPatch, file: str) -> None:
    master, slave = pty.openpty()
    with os.fdopen(slave, "w", encoding="utf-8") as terminal:
        monkeypatch.setenv("TERM", "vt52")
        for each in ("stdin", "stdout"):
            monkeypatch.setattr(sys, each, terminal)
        with pytest.raises(click.UsageError, match="TERM is 'vt52'"):
            _require_terminal()
        monkeypatch.setattr(sys, file, None)  # as Python has it if a shell closed the file: <&- or >&-
        with pytest.raises(click.UsageError, match="stdin and stdout are not a terminal: use --batch"):
            _require_terminal()
    os.close(master)


def test_without_textual_the_verb_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "textual", None)
    refused = brickd("top")
    assert refused.returncode == 2
    assert refused.stderr == "brickd: brickd top needs textual: pip install 'brickd[top]', or use --batch\n"
