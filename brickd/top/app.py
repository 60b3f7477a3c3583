"""The screen on a terminal, with textual.

Owns: the terminal, the keys as they arrive, which lines are drawn again. Must not know: documents, what a key means,
how a line is made. Invariants: Nothing is animated, and the only timer looks whether an answer is late. Only lines that
changed are drawn. No text is parsed as markup. Frames come from the poller's thread; all else happens in textual's.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style as RichStyle
from textual.app import App
from textual.binding import BindingType
from textual.events import Key, Resize
from textual.geometry import Region, Size
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from brickd.top import actions, lines
from brickd.top.draw import Drawn, draw
from brickd.top.first_screen import FirstScreen
from brickd.top.frame import Frame
from brickd.top.header import Cells
from brickd.top.keys import message, press
from brickd.top.lines import Line
from brickd.top.list_block import settled
from brickd.top.panel_rows import COLOURED, Look
from brickd.top.poll import Poller
from brickd.top.state import State
from brickd.top.terminal import Terminal

_LATE_SECONDS = 2.0  # an answer that takes longer is late
_STYLES = {style: RichStyle.parse(words) for style, words in lines.LOOKS.items()}


def strip(of: Line, width: int) -> Strip:
    """Return a line as textual draws it, padded to the width."""
    return Strip([Segment(span.text, _STYLES[span.style]) for span in of], lines.width(of)).adjust_cell_length(width)


class Canvas(Widget):
    """The whole terminal: lines that are drawn again only if they changed."""

    DEFAULT_CSS = "Canvas { width: 100%; height: 100%; background: ansi_default; }"
    can_focus = False

    def __init__(self) -> None:
        super().__init__()
        self._lines: list[Line] = []

    def show(self, new: list[Line]) -> None:
        """Show these lines."""
        old, self._lines = self._lines, new
        rows = max(len(old), len(new))
        changed = [n for n in range(rows) if n >= len(old) or n >= len(new) or old[n] != new[n]]
        if changed:
            self.refresh(*(Region(0, n, self.size.width, 1) for n in changed))

    def render_line(self, y: int) -> Strip:
        """Return the line of one row."""
        of = self._lines[y] if y < len(self._lines) else lines.EMPTY
        return strip(of, self.size.width)


class TopApp(App[None]):
    """`brickd top` on a terminal."""

    CSS = "Screen { background: ansi_default; overflow: hidden; }"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = []

    class Framed(Message):
        """A frame has arrived."""

        def __init__(self, frame: Frame) -> None:
            super().__init__()
            self.frame = frame

    class ActionEnded(Message):
        """An action ended with this sentence."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    def __init__(self, poller: Poller, state: State, look: Look = COLOURED, first: FirstScreen | None = None) -> None:
        super().__init__(driver_class=Terminal, ansi_color=True)
        self.animation_level = "none"
        self.state, self.look, self.first = state, look, first
        self.frame: Frame | None = poller.first(0)
        self.drawn: Drawn | None = None
        self._message = ""
        self._late = 0.0  # for how long an answer has been outstanding, if it is late
        self.canvas = Canvas()
        self.poller = poller
        if first is not None:  # textual draws once before it reports the size: the first screen must stay until then
            self._draw(Size(first.size.width, first.size.height or 0))

    def compose(self) -> list[Widget]:
        """Return the only widget."""
        return [self.canvas]

    def on_mount(self) -> None:
        """Take the frames, and look from time to time whether they still come."""
        self.app_resume_signal.subscribe(self, lambda _: self._redraw())
        self.set_interval(_LATE_SECONDS, self._look_at_poller)
        self.poller.send_to(lambda frame: self.post_message(self.Framed(frame)))

    def on_unmount(self) -> None:
        """Stop asking."""
        self.poller.end()

    def on_resize(self, event: Resize) -> None:
        """Draw for the new size."""
        self._draw(event.size)

    def on_top_app_framed(self, framed: Framed) -> None:
        """Draw a frame. A paused screen ignores late answers, but not those to a later choice."""
        framed.stop()
        has_all = self.frame is not None and self.frame.state.asks_like(self.state)
        if self.state.paused and not framed.frame.state.paused and has_all:
            return
        self.frame, self._late = framed.frame, 0.0
        self._draw()

    def _look_at_poller(self) -> None:
        before, waits = self._late, self.poller.waits()
        self._late = waits if waits >= _LATE_SECONDS else 0.0
        if self._late or before:
            self._draw()

    def on_top_app_action_ended(self, ended: ActionEnded) -> None:
        """Show what an action did."""
        ended.stop()
        self._message = ended.text
        self._draw()

    def on_key(self, event: Key) -> None:
        """Do what the key means."""
        event.stop()
        event.prevent_default()
        if self.drawn is None:
            return
        self.state, effect = press(self.state, self.drawn.shown, event.key, event.character)
        self._message = message(self.state, self.drawn.shown, event.key, event.character)
        match effect:
            case "quit":
                self.exit()
                return
            case "copy":
                self._copy()
            case "silence":
                self._silence()
            case "suspend":
                self.action_suspend_process()
            case "redraw":
                self._redraw()
        self._draw()

    def _redraw(self) -> None:
        """Draw all lines, because the terminal may show something else."""
        self.refresh(repaint=True, layout=True)

    def _draw(self, size: Size | None = None) -> None:
        width, height = size or self.size
        self.drawn = draw(self.state, self.frame, Cells(width, height), self.look, self._message, self._late)
        self.frame = self.drawn.frame  # a document that cannot be drawn is dropped
        self.state = settled(self.state, self.drawn.shown.lists)
        self.canvas.show(list(self.drawn.lines))
        self.poller.want(self.state, self.drawn.trends)

    def _copy(self) -> None:
        assert self.drawn is not None
        row = actions.whole_row(self.state, self.frame, self.drawn.shown, self.look)
        if not row:
            self._message = actions.NO_ROW
            return
        self.copy_to_clipboard(row)
        self._message = f"copied: {row}"

    def _silence(self) -> None:
        assert self.drawn is not None
        if not actions.is_now(self.state, self.frame):
            self._message = actions.NOT_NOW
            return
        status = self.frame.status.document if self.frame is not None else None
        of = self.drawn.shown.lists.get(self.state.focus)
        problem = actions.selected_problem(status, None if of is None else of.selected)
        if status is None or problem is None:
            self._message = actions.NO_PROBLEM
            return
        self._message = f"silencing {problem}"
        self._do(lambda: actions.silence(status, problem))

    def _do(self, action: Callable[[], str]) -> None:
        """Run an action in a thread, because a daemon may answer late."""
        threading.Thread(target=lambda: self.post_message(self.ActionEnded(action())), daemon=True).start()


def run(poller: Poller, state: State, look: Look, first: FirstScreen) -> None:
    """Show the frames of a poller until the operator quits."""
    TopApp(poller, state, look, first).run(mouse=False)
