"""`brickd top` in a real terminal, which tmux captures, next to the demonstration."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from unittest.mock import patch

import pytest
from pictures.shots import BRICK, BRICKD, DAMAGED, demonstration, satisfied
from pictures.terminal import Server, plain

SIZES = [(80, 24), (200, 50)]
SECONDS = 100


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed")
    with patch.dict(os.environ), demonstration() as server:
        yield server


@pytest.mark.slow
@pytest.mark.parametrize(("columns", "rows"), SIZES)
def test_a_real_terminal_shows_problems_bricks_and_keys_without_a_wrong_cut(
    server: Server, columns: int, rows: int
) -> None:
    terminal = server.open(f"top-{columns}", columns, rows, [*BRICKD, "top"])
    screen = terminal.wait(satisfied([DAMAGED, BRICK]), "the damaged worker and its bricks", SECONDS)
    lines = plain(screen).split("\n")
    assert len(lines) == rows
    assert max(map(len, lines)) <= columns
    assert lines[0].startswith("brickd top  ")
    assert "PROBLEM" in lines[0]
    assert lines[0].endswith("every 1s")
    assert lines[-1].split("  ")[:3] == ["? help", "q quit", "tab list"]
    assert not lines[-1].endswith("…")
    # each worker has its own row, and a table has its head
    assert all(any(f"  demo/{number} " in line for line in lines) for number in range(4))
    head = next(line for line in lines if line.startswith("BRICK"))
    # a number is never cut: only names and texts end with an ellipsis
    below = lines[lines.index(head) + 1 : -1]
    assert below
    assert not [line for line in below if "…" in line]
    assert "\x1b[" in screen


@pytest.mark.slow
def test_a_terminal_is_resized_shows_the_keys_and_is_left_as_it_was(server: Server) -> None:
    terminal = server.open(
        "resized", 80, 24, ["sh", "-c", 'echo before; "$@"; echo "ended $?"; read -r _', "sh", *BRICKD, "top"]
    )
    terminal.wait(satisfied([BRICK]), "bricks", SECONDS)
    terminal.resize(200, 50)
    wide = terminal.wait(satisfied([BRICK, r"│ . LEDGER"]), "the ledger at the right", SECONDS)
    assert len(plain(wide).split("\n")) == 50
    terminal.press("?")
    terminal.wait(satisfied([r"^. KEYS", r"^q, Ctrl-C +quit"]), "the keys", SECONDS)
    terminal.press("?")
    terminal.wait(satisfied([BRICK]), "bricks", SECONDS)
    terminal.press("q")
    left = terminal.wait(satisfied([r"^ended 0"]), "the shell", SECONDS)
    assert [line for line in plain(left).split("\n") if line] == ["before", "ended 0"]
