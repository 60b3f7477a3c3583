"""What the operator chose: the lists, the panel, the order, the filter, the time.

Owns: the state, and which answers it needs. Must not know: textual, documents, which key does what. Invariant: A state
never changes; each change returns a new one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from brickd.top.places import ListName, Selection

# The panels of the command line and of the digits, each with its key. The verb shows them in its help, so this module
# imports nothing that takes time.
PANEL_KEYS = {
    "bricks": "1",
    "tree": "2",
    "stragglers": "3",
    "numerics": "4",
    "problems": "5",
    "hang": "6",
    "ledger": "7",
    "history": "8",
    "events": "9",
    "workers": "0",
}
HOUR, DAY = 3600.0, 86400.0  # how far rates go back
ROWS_STEP = 100  # a panel asks for this many more rows than the operator has passed


class State(NamedTuple):
    """What the operator chose.

    Attributes:
        names: the workers and services of the command line; the whole screen is about them.
        subject: the service or worker that the panel is about; None for all.
        focus: the list that the arrow keys move in.
        panel: the name of the open panel.
        sort: the order of the panel's rows; "" for the panel's first one.
        order: the order of the workers.
        reverse: whether the panel's order is reversed.
        period: how many seconds live totals cover; None is everything since the start.
        rates_over: how many seconds the rates and the history go back.
        filter: the panel shows only rows with this text.
        typing: whether keys are added to the filter.
        paused: whether the screen stays as it is.
        picked: the workers to compare.
        cursor: the shown time in seconds since 1970; None is now, or the end of a recording.
        mark: a time to which the cursor can go back.
        interval: the seconds between two answers.
        help: whether the keys are shown.
        all_rows: whether the panel asks for all rows: after End, and in a batch.
        places: where the operator is in each list.
    """

    names: tuple[str, ...] = ()
    subject: str | None = None
    focus: ListName = "panel"
    panel: str = "bricks"
    sort: str = ""
    order: str = "name"
    reverse: bool = False
    period: float | None = 60.0
    rates_over: float = HOUR
    filter: str = ""
    typing: bool = False
    paused: bool = False
    picked: tuple[str, ...] = ()
    cursor: float | None = None
    mark: float | None = None
    interval: float = 1.0
    help: bool = False
    all_rows: bool = False
    places: Mapping[ListName, Selection] = {}

    @property
    def about(self) -> tuple[str, ...]:
        """The names that the panel is about."""
        return self.names if self.subject is None else (self.subject,)

    @property
    def needs_all_rows(self) -> bool:
        """Whether the panel cannot be drawn from its first rows alone."""
        return self.all_rows or self.selects_rows

    @property
    def selects_rows(self) -> bool:
        """Whether the first rows of the panel would be others if all were known."""
        return bool(self.filter) or self.reverse

    def asks_like(self, other: State) -> bool:
        """Whether both states need the same answers."""
        return self._asked() == other._asked()

    def _asked(self) -> tuple[object, ...]:
        rows = 0 if self.needs_all_rows else self.places.get("panel", Selection()).row // ROWS_STEP
        chosen = (self.about, self.panel, self.sort, self.period, self.rates_over, self.picked, self.cursor)
        return (*chosen, self.interval, rows, self.needs_all_rows)
