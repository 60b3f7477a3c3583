"""Screens of `brickd top` for tests: drawn from real answers, without a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from brickd.top import lines
from brickd.top.asker import Asker
from brickd.top.draw import Drawn, draw
from brickd.top.frame import Frame
from brickd.top.header import Cells
from brickd.top.keys import Effect, press
from brickd.top.list_block import settled
from brickd.top.panel_rows import Look
from brickd.top.source import DocumentSource, LiveSource
from brickd.top.state import State

PLAIN, INITIAL, TERMINAL = Look(colour=False), State(), Cells(80, 24)


class Top:
    """The screen of a source. Keys change it as on a terminal, and each asks for new answers."""

    def __init__(self, source: DocumentSource | None = None, state: State = INITIAL, size: Cells = TERMINAL) -> None:
        self.asker, self.state, self.size = Asker(source or LiveSource()), state, size
        self.effects: list[Effect] = []
        self.frame: Frame
        self.drawn: Drawn
        self.ask()

    def ask(self) -> None:
        """Get new answers, and draw them."""
        trends: Sequence[str] = self.drawn.trends if hasattr(self, "drawn") else ()
        self.frame = self.asker.frame(self.state, trends)
        self.draw()
        self.frame = self.asker.more(self.state, self.drawn.trends) or self.frame
        self.draw()

    def draw(self) -> None:
        self.drawn = draw(self.state, self.frame, self.size, PLAIN)
        self.state = settled(self.state, self.drawn.shown.lists)

    def press(self, *keys: str) -> list[str]:
        """Press keys; return the screen."""
        for key in keys:
            character = key if len(key) == 1 else " " if key == "space" else None
            self.state, effect = press(self.state, self.drawn.shown, key, character)
            self.effects += [effect] if effect is not None else []
            self.ask()
        return self.lines

    @property
    def lines(self) -> list[str]:
        return [lines.text(each).rstrip(" ") for each in self.drawn.lines]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)
