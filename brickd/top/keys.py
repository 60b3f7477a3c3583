"""The keys: what each does, and the line about it in the help.

Owns: the table of keys. Must not know: textual, except for the names of its keys; documents. Invariants: A key either
changes the state or asks the program for an effect. A key that can do nothing here changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from brickd.base import escape
from brickd.base.timestamps import clock
from brickd.top import state_changes as states
from brickd.top.characters import key_name
from brickd.top.places import OnScreen
from brickd.top.state import DAY, HOUR, PANEL_KEYS, State
from brickd.top.state_changes import LONG_STEP, STEP
from brickd.top.worker_list import ORDERS

Effect = Literal["quit", "suspend", "copy", "silence", "redraw"]


class Key(NamedTuple):
    """A key of the keyboard, or several that do the same or the opposite.

    Attributes:
        keys: the names of the keys, and what each does.
        name: the keys as the help shows them.
        help: what they do.
        says: returns what the key did or why it did nothing, from the state after it; "" if the screen shows this.
    """

    keys: dict[str, Callable[[State, OnScreen], State] | Effect]
    name: str
    help: str
    says: Callable[[State, OnScreen], str] = lambda state, shown: ""


def _panel(name: str) -> Callable[[State, OnScreen], State]:
    return lambda state, shown: states.opened(state, name)


def _moving(step: int) -> Callable[[State, OnScreen], State]:
    return lambda state, shown: states.moved(state, shown, step)


def _paging(pages: int) -> Callable[[State, OnScreen], State]:
    return lambda state, shown: states.paged(state, shown, pages)


def _turning(seconds: float) -> Callable[[State, OnScreen], State]:
    return lambda state, shown: states.turned(state, shown, seconds)


def _says_picked(state: State, shown: OnScreen) -> str:
    return "" if states.selected_worker(shown) else f"select a worker first{_GO}"


def _says_compared(state: State, shown: OnScreen) -> str:
    picked = len(state.picked)
    return "" if state.panel == "diff" else f"pick two workers first ({picked} of 2 picked){_GO}, x picks one"


_GO = ": Tab goes to the workers"


def _says_marked(state: State, shown: OnScreen) -> str:
    return "" if state.mark is None else f"{clock(state.mark)} is marked: ' goes there"


def _says_mark(state: State, shown: OnScreen) -> str:
    return "no time is marked: m marks the shown time" if state.mark is None else ""


KEYS: Sequence[Key] = (
    Key({"up": _moving(-1), "down": _moving(1), "k": _moving(-1), "j": _moving(1)}, "↑ ↓, k j", "select a row"),
    Key({"pageup": _paging(-1), "pagedown": _paging(1)}, "PgUp PgDn", "select a row one screen above or below"),
    Key(
        {
            "home": lambda state, shown: states.to_end(state, shown, last=False),
            "end": lambda state, shown: states.to_end(state, shown, last=True),
        },
        "Home End",
        "select the first or the last row",
    ),
    Key(
        {
            "tab": lambda state, shown: states.focused(state, shown, 1),
            "shift+tab": lambda state, shown: states.focused(state, shown, -1),
        },
        "Tab, Shift-Tab",
        "go to the next or the previous list: workers, problems, panel",
    ),
    Key({"enter": states.entered}, "Enter", "show only the selected worker or service in the panel"),
    Key(
        {"escape": lambda state, shown: states.left(state)},
        "Esc",
        "go one step back: drop the filter, the picked workers, the chosen worker, or the past time",
    ),
    Key(
        {key: _panel(name) for name, key in PANEL_KEYS.items()},
        "0-9",
        "open a panel: " + ", ".join(f"{key} {name}" for name, key in PANEL_KEYS.items()),
    ),
    Key(
        {"s": lambda state, shown: states.sorted_next(state, shown, list(ORDERS))},
        "s",
        "sort the list by the next column",
    ),
    Key({"r": lambda state, shown: state._replace(reverse=not state.reverse)}, "r", "reverse the panel's order"),
    Key(
        {"o": lambda state, shown: states.over_next(state)}, "o", "show the totals of 10 s, of 60 s, or since the start"
    ),
    Key(
        {"h": lambda state, shown: state._replace(rates_over=HOUR if state.rates_over == DAY else DAY)},
        "h",
        "show the rates of the last day; again: of the last hour",
    ),
    Key(
        {"/": lambda state, shown: state._replace(typing=True, focus="panel", help=False)},
        "/",
        "filter the panel: type a text that its rows must contain; Esc clears the filter",
    ),
    Key(
        {"p": lambda state, shown: state._replace(paused=not state.paused)},
        "p",
        "pause the screen; again: continue",
    ),
    Key(
        {"x": states.picked, "space": states.picked},
        "x, Space",
        "pick the selected worker for a comparison; again: drop it",
        _says_picked,
    ),
    Key(
        {"d": lambda state, shown: states.compared(state)},
        "d",
        "compare the two workers that are picked",
        _says_compared,
    ),
    Key(
        {"left": _turning(-STEP), "right": _turning(STEP)},
        "← →",
        f"go back or forward in time by {STEP:.0f} s",
    ),
    Key(
        {"[": _turning(-LONG_STEP), "]": _turning(LONG_STEP)},
        "[ ]",
        f"go back or forward in time by {LONG_STEP / 60:.0f} min",
    ),
    Key({"n": lambda state, shown: state._replace(cursor=None)}, "n", "go to now, or to the end of a recording"),
    Key({"m": states.marked}, "m", "mark the shown time", _says_marked),
    Key({"'": lambda state, shown: states.to_mark(state)}, "'", "go to the marked time; again: go to now", _says_mark),
    Key({"S": "silence"}, "S", "silence the selected problem for 2 h, or end its silence"),
    Key({"c": "copy", "y": "copy"}, "c, y", "copy the selected row to the clipboard of the terminal"),
    Key(
        {"+": lambda state, shown: states.faster(state, -1), "-": lambda state, shown: states.faster(state, 1)},
        "+ -",
        "refresh more often or less often",
    ),
    Key({"ctrl+l": "redraw"}, "Ctrl-L", "draw the whole screen again"),
    Key(
        {"?": lambda state, shown: states.helped(state)},
        "?",
        "show the keys; again: hide them",
    ),
    Key({"ctrl+z": "suspend"}, "Ctrl-Z", "suspend the screen; fg in the shell continues it"),
    Key({"q": "quit", "ctrl+c": "quit"}, "q, Ctrl-C", "quit"),
)

_ACTS = {name: act for key in KEYS for name, act in key.keys.items()}


def press(state: State, shown: OnScreen, key: str, character: str | None = None) -> tuple[State, Effect | None]:
    """Return the state after a key, and the effect that the key asks for.

    Args:
        state: the state before the key.
        shown: what is on the screen.
        key: the name of the key.
        character: the character that the key types, if it types one.
    """
    if state.typing and key != "ctrl+c":
        return states.typed(state, key, character), None
    act = _ACTS.get(key) or (_ACTS.get(character) if character else None)
    if act is None:
        return state, None
    return (state, act) if isinstance(act, str) else (act(state, shown), None)


def message(state: State, shown: OnScreen, key: str, character: str | None = None) -> str:
    """Return what a key did, or why it did nothing; "" if the screen shows this. `state` is the one after the key."""
    if state.typing:
        return ""
    return next((each.says(state, shown) for each in KEYS if key in each.keys or character in each.keys), "")


def help_lines(width: int, *, ascii_only: bool = False) -> list[str]:
    """Return the help in lines of at most this width. On a narrow screen, each text is below the names of its keys."""
    names = [key_name(key.name, ascii_only=ascii_only) for key in KEYS]
    left = max(map(len, names))
    lines = []
    for key, name in zip(KEYS, names, strict=True):
        if width - left - 2 < _LEAST_HELP:
            lines += [name, *(f"  {each}" for each in escape.wrapped(key.help, max(8, width - 2)))]
            continue
        first, *others = escape.wrapped(key.help, width - left - 2)
        lines += [f"{name.ljust(left)}  {first}", *(f"{'':{left}}  {each}" for each in others)]
    return lines


_LEAST_HELP = 24  # a narrower text has one or two words per line
