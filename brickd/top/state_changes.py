"""What keys change in the state.

Owns: each change. Must not know: textual, documents, which key does what. Invariants: Each function returns a new
state. At most two workers are picked.
"""

from __future__ import annotations

from collections.abc import Sequence

from brickd.top.places import ListName, OnScreen, Selection, ShownList, resolved
from brickd.top.state import State

PICKED_MAX = 2
INTERVALS = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
PERIODS = (10.0, 60.0, None)  # the seconds that live totals cover; None is everything since the start
STEP, LONG_STEP = 10.0, 300.0  # the slots of the last hour and of the last two days, in seconds


# ---- moving


def moved(state: State, shown: OnScreen, rows: int) -> State:
    """Select a row above or below; `rows` is how far."""
    of = shown.lists.get(state.focus, ShownList())
    return _at(state, of, of.place.row + rows)


def paged(state: State, shown: OnScreen, pages: int) -> State:
    """Select the row a screen above or below."""
    of = shown.lists.get(state.focus, ShownList())
    return _at(state, of, of.place.row + pages * max(1, of.height - 1))


def to_end(state: State, shown: OnScreen, last: bool) -> State:
    """Select the last or the first row. The last one of a panel may not have arrived yet."""
    of = shown.lists.get(state.focus, ShownList())
    ended = _at(state, of, len(of.keys) - 1 if last else 0)
    return ended._replace(all_rows=last) if state.focus == "panel" else ended


def _at(state: State, of: ShownList, row: int) -> State:
    if not of.keys:
        return state
    row = max(0, min(row, len(of.keys) - 1))
    # at the first row, the operator wants the newest or the worst row, not this one
    key = of.keys[row] if row else None
    return placed(state, resolved(Selection(key, row, of.place.first), of.keys, max(1, of.height)))


def placed(state: State, place: Selection, of: ListName | None = None) -> State:
    """Return the state with another place in a list; the list of the focus by default."""
    of = of or state.focus
    all_rows = state.all_rows and of != "panel"
    return state._replace(places={**state.places, of: place}, all_rows=all_rows)


def focused(state: State, shown: OnScreen, step: int) -> State:
    """Move the focus to another list that has rows."""
    lists = list(shown.lists)
    if not lists:
        return state
    at = lists.index(state.focus) if state.focus in lists else -1
    return state._replace(focus=lists[(at + step) % len(lists)])


# ---- choosing


def opened(state: State, panel: str) -> State:
    """Open a panel, and give it the focus."""
    if panel == state.panel:
        return state._replace(focus="panel", help=False)
    state = state._replace(panel=panel, sort="", reverse=False, filter="", focus="panel", help=False)
    return placed(state, Selection(), "panel")


def entered(state: State, shown: OnScreen) -> State:
    """Let the panel be about the selected service or worker; of a problem, open the list of problems."""
    if state.focus == "workers" and (of := shown.lists.get("workers")) is not None and of.selected is not None:
        subject = None if of.selected == state.subject else of.selected
        return placed(state._replace(subject=subject), Selection(), "panel")
    return opened(state, "problems") if state.focus == "problems" else state


def helped(state: State) -> State:
    """Show the keys from the first one on, or hide them."""
    return state._replace(
        help=not state.help, focus="panel" if state.help else "help", places={**state.places, "help": Selection()}
    )


def left(state: State) -> State:
    """Undo the first of these: help, filter, picked workers and their comparison, subject, cursor."""
    if state.help:
        return helped(state)
    if state.typing:
        return state._replace(typing=False)
    if state.filter:
        return state._replace(filter="")
    if state.picked or state.panel == "diff":
        return state._replace(picked=(), panel="bricks" if state.panel == "diff" else state.panel)
    if state.subject is not None:
        return state._replace(subject=None)
    return state._replace(cursor=None)


def selected_worker(shown: OnScreen) -> str | None:
    """Return the selected worker; None if the list of workers is not shown, or if a service is selected."""
    name = shown.lists.get("workers", ShownList()).selected
    return name if name is not None and "/" in name else None


def picked(state: State, shown: OnScreen) -> State:
    """Pick the selected worker to compare it, or drop it. Of three, the first one is dropped."""
    if (name := selected_worker(shown)) is None:
        return state
    if name in state.picked:
        return state._replace(picked=tuple(each for each in state.picked if each != name))
    return state._replace(picked=(*state.picked, name)[-PICKED_MAX:])


def compared(state: State) -> State:
    """Open the comparison if two workers are picked."""
    return opened(state, "diff") if len(state.picked) == PICKED_MAX else state


def sorted_next(state: State, shown: OnScreen, orders: Sequence[str]) -> State:
    """Choose the next order of the list that has the focus; `orders` are those of the workers."""
    if state.focus == "workers":
        return state._replace(order=_next(orders, state.order))
    if not shown.sorts:
        return state
    return placed(state._replace(sort=_next(shown.sorts, state.sort or shown.sorts[0])), Selection(), "panel")


def _next(of: Sequence[str], now: str) -> str:
    return of[(of.index(now) + 1) % len(of)] if now in of else of[0]


def typed(state: State, key: str, character: str | None) -> State:
    """Take a key of the filter's text."""
    match key:
        case "enter":
            return state._replace(typing=False)
        case "escape":
            return state._replace(typing=False, filter="")
        case "backspace":
            return state._replace(filter=state.filter[:-1])
    if character is not None and character.isprintable() and len(state.filter) < _FILTER_MAX:
        return state._replace(filter=state.filter + character)
    return state


_FILTER_MAX = 200


def faster(state: State, step: int) -> State:
    """Ask more often (-1) or less often (1). The command line may give an interval beyond the first or the last one."""
    if step < 0:
        return state._replace(interval=max((n for n in INTERVALS if n < state.interval), default=state.interval))
    return state._replace(interval=min((n for n in INTERVALS if n > state.interval), default=state.interval))


def over_next(state: State) -> State:
    """Let live totals cover the next of the periods."""
    at = PERIODS.index(state.period) if state.period in PERIODS else 0
    return state._replace(period=PERIODS[(at + 1) % len(PERIODS)])


# ---- time


def turned(state: State, shown: OnScreen, seconds: float) -> State:
    """Move the cursor from the shown time. At the newest data, the screen shows the present again."""
    at = shown.at + seconds + shown.slack
    return state._replace(cursor=None if at >= shown.newest else at)


def marked(state: State, shown: OnScreen) -> State:
    """Mark the shown time."""
    return state._replace(mark=shown.at)


def to_mark(state: State) -> State:
    """Move the cursor to the mark, or from there to now."""
    if state.mark is None:
        return state
    return state._replace(cursor=None if state.cursor == state.mark else state.mark)
