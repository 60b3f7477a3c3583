"""The answers of one screen.

Owns: which requests a screen needs, which answers are kept, how long answers must be apart. Must not know: threads,
textual, how a document is drawn. Invariants: No error ends the screen: the last documents stay, and the frame says what
is wrong. Nothing grows: an answer replaces the one before it, and only the histories of workers on the screen are kept.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from brickd.errors import BrickdError
from brickd.query.queries import HistoryQuery, StatusQuery
from brickd.top import panels
from brickd.top.frame import Frame, KeptAnswer, unknown, without_bricks
from brickd.top.source import DocumentSource, InterruptionError, Request
from brickd.top.state import State

Document = dict[str, Any]

_HISTORY_SECONDS = 10.0  # a slot of the last hour ends this often
_RATES = 12  # the rates of a name: all of them fit on 80 columns
_HISTORIES_PER_TICK = 2  # so that the histories of many workers never delay the totals by much
_ENDED = "the daemon has ended; shared memory is read instead (start a daemon: brickd up -d)"


class _History(NamedTuple):
    """The rates of one name.

    Attributes:
        asked: when they were requested.
        period: the cursor and how many seconds the rates go back.
        document: the newest history; None if the view did not answer.
    """

    asked: float
    period: tuple[float | None, float]
    document: Document | None


class Asker:
    """Asks for everything that one screen needs. It remembers only the newest answers."""

    def __init__(self, source: DocumentSource, clock: Callable[[], float] = time.time) -> None:
        self._source, self._clock = source, clock
        self._status, self._panel = KeptAnswer(), KeptAnswer()
        self._asked: State | None = None
        self._histories: dict[str, _History] = {}
        self._had_daemon = False
        self._seconds = 0.0
        self._spacings = deque([0.0], maxlen=2)  # those after the newest answers

    def frame(self, state: State, trends: Sequence[str], *, tick: bool = True) -> Frame:
        """Return the screen's documents, with the histories that are known.

        Args:
            state: what the operator chose.
            trends: the names whose histories are on the screen; the others are forgotten.
            tick: whether new answers are wanted even if the choices are the same.
        """
        began, worked = time.monotonic(), time.thread_time()
        before, known = self._asked, (self._status, self._panel)
        if before is None or not before.asks_like(state) or (tick and not self._source.recorded):
            try:
                with self._source.together():
                    self._ask_all(state, before, tick=tick)
            except InterruptionError:
                self._status, self._panel = known  # half of the answers would not fit together
                raise
            self._seconds = time.monotonic() - began
            self._spacings.append(spacing(self._seconds, time.thread_time() - worked))
        self._asked = state
        self._histories = {name: found for name, found in self._histories.items() if name in trends}
        return self._frame(state)

    def more(self, state: State, trends: Sequence[str]) -> Frame | None:
        """Ask for histories; return the frame with them, or None if all are new enough.

        A recording is read once for all of them. A daemon is asked for the oldest ones.
        """
        due = [name for name in trends if not self._is_current(name)]
        due.sort(key=lambda name: self._histories[name].asked if name in self._histories else 0.0)
        query = HistoryQuery(over=state.rates_over, every=state.rates_over / _RATES)
        found: dict[str, Document | None]
        if self._source.recorded:
            request = Request("histories", query.replaced(names=tuple(due)), state.cursor)
            answer = self._ask(lambda: request, KeptAnswer()).document if due else None
            found = dict.fromkeys(due) | ({} if answer is None else answer["histories"])
        else:
            query = query.replaced(at=state.cursor)
            with self._source.together():
                found = {name: self._history(query.replaced(names=(name,))) for name in due[:_HISTORIES_PER_TICK]}
        period = (state.cursor, state.rates_over)
        self._histories |= {name: _History(time.monotonic(), period, each) for name, each in found.items()}
        return self._frame(state) if due else None

    def _history(self, query: HistoryQuery) -> Document | None:
        return self._ask(lambda: Request("history", query), KeptAnswer()).document

    def _frame(self, state: State) -> Frame:
        return Frame(
            state=state,
            status=self._status,
            panel=self._panel,
            histories={
                name: each.document
                for name, each in self._histories.items()
                if each.document is not None and each.period[1] == state.rates_over
            },
            newest=self._source.newest(),
            seconds=self._seconds,
            spacing=min(self._spacings),  # a single answer may take longer: the first one loads modules
            recorded=self._source.recorded,
        )

    @property
    def is_recorded(self) -> bool:
        """Whether a recording is shown."""
        return self._source.recorded

    def is_complete(self, trends: Sequence[str]) -> bool:
        """Whether all answers about a recording are known, so that another frame would be equal."""
        return self._source.recorded and all(self._is_current(name) for name in trends)

    def _ask_all(self, state: State, before: State | None, *, tick: bool) -> None:
        recorded = self._source.recorded
        if tick or before is None or before.cursor != state.cursor:
            query = StatusQuery(names=state.names, at=None if recorded else state.cursor)
            at = state.cursor if recorded else None
            other = before is not None and before.cursor != state.cursor
            # if the request fails, data of another time must not look like data of this time
            known = unknown(self._status) if other else self._status
            found = self._ask(lambda: Request("status", query, at), known)
            self._status = without_bricks(self._with_end_of_daemon(found))
        # the document of another panel or of another time must not look like the requested one
        if before is not None and _panel_of(before) != _panel_of(state):
            self._panel = KeptAnswer()
        if (status := self._status.document) is None:
            return
        self._panel = self._ask(lambda: panels.request(state, status, recorded=recorded), self._panel)

    def _with_end_of_daemon(self, status: KeptAnswer) -> KeptAnswer:
        """Note that a daemon which answered before has ended: `brickd down` leaves nothing that says so."""
        if status.error is not None or status.document is None:
            return status
        source = status.document.get("source")
        self._had_daemon = self._had_daemon or source == "daemon"
        ended = self._had_daemon and source == "shared memory" and not status.words
        return status._replace(words=(_ENDED,)) if ended else status

    def _ask(self, request: Callable[[], Request | None], before: KeptAnswer) -> KeptAnswer:
        """Ask; keep what was known before if there is no answer. A query refuses choices that exclude each other."""
        try:
            if (made := request()) is None:
                return KeptAnswer()
            found = self._source.answer(made)
        except InterruptionError:
            raise
        except (BrickdError, OSError) as error:
            return before._replace(error=str(error))
        except Exception as error:  # a defect, or an answer of another version: the screen goes on and says so
            return before._replace(error=_unexpected(error))
        ended = found.missing is not None and found.missing.ended
        words = (f"{found.missing.what}; shared memory is read instead",) if found.missing is not None and ended else ()
        return KeptAnswer(found.document, words + found.words, self._clock())

    def _is_current(self, name: str) -> bool:
        known = self._histories.get(name)
        if known is None or self._asked is None or known.period != (self._asked.cursor, self._asked.rates_over):
            return False
        return self._source.recorded or time.monotonic() - known.asked < _HISTORY_SECONDS


def _panel_of(state: State) -> tuple[object, ...]:
    """Return the choices whose answers replace no other one."""
    return state.panel, state.about, state.cursor


def _unexpected(error: Exception) -> str:
    from brickd.client import client

    other = client.unlike(error)
    return (
        str(other) if other is not None else f"{type(error).__name__}: {error} (a defect of brickd: please report it)"
    )


def spacing(seconds: float, work: float) -> float:
    """Return the least number of seconds from the begin of an answer to the begin of the next one.

    A daemon is then busy for a quarter of the time at most, and this process, which also draws, for a thirtieth.

    Args:
        seconds: how long the answer took.
        work: the processor time of this thread for the answer, in seconds.

    >>> spacing(0.5, 0.01), spacing(0.5, 0.1)
    (2.0, 3.0)
    """
    return max(4 * seconds, 30 * work)
