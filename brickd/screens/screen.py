"""The target of human text.

Owns: the width and the colours of a screen, and how they are found for a stream. Must not know: documents. Invariants:
Colours are used only on a terminal, and never with NO_COLOR. COLUMNS overrides the width of a terminal.
"""

from __future__ import annotations

import os
from typing import NamedTuple, TextIO


class Screen(NamedTuple):
    """The width and the colours of the target of human text.

    Attributes:
        width: the largest display width of a line; None for a pipe, where nothing is cut.
        colour: whether lines may have colours.
    """

    width: int | None
    colour: bool

    def paint(self, line: str, colour: str) -> str:
        """Return an escaped line, ready to print, in one of click's colours if the screen has colours."""
        if not self.colour:
            return line
        import click  # imported only to paint, because a pipe needs no colours

        return click.style(line, fg=colour)


def screen_of(stream: TextIO) -> Screen:
    """Return the width and the colours of a stream."""
    on_terminal = stream.isatty()
    columns = os.environ.get("COLUMNS", "")
    if columns.isascii() and columns.isdigit():
        width = int(columns)
    else:
        width = os.get_terminal_size(stream.fileno()).columns if on_terminal else 0
    # A serial console reports 0 columns if it does not know its width.
    return Screen(width or None, on_terminal and not os.environ.get("NO_COLOR"))
