"""The lists on the screen, and where the operator is in each.

Owns: a place in a list, what is on the screen. Must not know: textual, documents, which key does what. Invariants: The
selection follows its subject (a worker, a brick, a problem), so that a key never acts on another row that moved to the
same place. An untouched list, and a list whose first row is selected, stay at their first row, so that they show the
newest rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

ListName = Literal["workers", "problems", "panel", "help"]


class Selection(NamedTuple):
    """Where the operator is in a list.

    Attributes:
        key: the subject of the selected row; None if the row has none, or if the selection stays at the first row.
        row: the selected row.
        first: the first row on the screen.
    """

    key: str | None = None
    row: int = 0
    first: int = 0


class ShownList(NamedTuple):
    """A list as it is on the screen.

    Attributes:
        keys: the subject of each row, on the screen or not.
        texts: the text of each row.
        height: how many rows are on the screen.
        place: the selected row and the first row on the screen.
        omitted: how many more rows there are; if any, the last row counts them.
    """

    keys: Sequence[str | None] = ()
    texts: Sequence[str] = ()
    height: int = 0
    place: Selection = Selection()
    omitted: int = 0

    @property
    def selected(self) -> str | None:
        """The subject of the selected row."""
        return self.keys[self.place.row] if self.place.row < len(self.keys) else None


class OnScreen(NamedTuple):
    """What is on the screen.

    Attributes:
        lists: the lists that have rows, in the order of the screen.
        sorts: the orders that the open panel offers.
        at: the time of the shown data, in seconds since 1970.
        newest: the time of the newest data, in seconds since 1970.
        slack: how much further the cursor goes than the data: a recording shows the last snapshot until the cursor, and
            two snapshots are not exactly a step apart.
    """

    lists: Mapping[ListName, ShownList]
    sorts: Sequence[str] = ()
    at: float = 0.0
    newest: float = 0.0
    slack: float = 0.0


def resolved(place: Selection, keys: Sequence[str | None], height: int) -> Selection:
    """Return the place in a list that may have changed: the same subject, or else the nearest row.

    A place at the first row without a subject stays at the first row.

    >>> resolved(Selection("b", 1, 0), ["x", "a", "b"], 2)
    Selection(key='b', row=2, first=1)
    >>> resolved(Selection("gone", 5, 4), ["x", "a"], 2), resolved(Selection(), [], 3)
    (Selection(key='a', row=1, first=0), Selection(key=None, row=0, first=0))
    """
    if not keys:
        return Selection()
    index = min(place.row, len(keys) - 1)
    if place.key is not None and keys[index] != place.key and place.key in keys:
        index = keys.index(place.key)
    if index == 0 and keys[0] != place.key:
        return Selection()
    first = max(min(place.first, index, len(keys) - height), index - height + 1, 0)
    return Selection(keys[index], index, first)
