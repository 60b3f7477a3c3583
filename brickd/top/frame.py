"""The documents of one screen, and what happened to each request.

Owns: which parts of an answer are kept, how a status of an unknown time looks. Must not know: when something is asked,
how a document is drawn. Invariant: a document is never changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from brickd.top.state import State

Document = dict[str, Any]


class KeptAnswer(NamedTuple):
    """The newest document of a request, and what happened to the request since then.

    Attributes:
        document: the newest document; None before the first one.
        words: the notes about it.
        received: when it arrived, in seconds since 1970.
        error: why the newest request failed; None if it did not.
    """

    document: Document | None = None
    words: tuple[str, ...] = ()
    received: float = 0.0
    error: str | None = None


# The keys of a status about one time.
_OF_A_TIME = (
    *("at", "workers", "problems", "silenced", "ledger", "removed", "numerics", "evidence", "diverged", "weights"),
    *("stragglers", "waiting", "judged_age_ns", "alarms"),
)


def unknown(of: KeptAnswer) -> KeptAnswer:
    """Return a status in which the workers and problems are not known."""
    return of._replace(document=None if of.document is None else {**of.document, **dict.fromkeys(_OF_A_TIME)}, words=())


# In an answer that lists thousands of bricks, these would be most of the memory. The panel asks for bricks itself.
_NOT_SHOWN = ("bricks", "categories")


def without_bricks(of: KeptAnswer) -> KeptAnswer:
    """Return a status without the parts that the screen does not show."""
    if of.document is None:
        return of
    return of._replace(document={key: each for key, each in of.document.items() if key not in _NOT_SHOWN})


class Frame(NamedTuple):
    """All that one screen shows.

    Attributes:
        state: the state for which the panel's document was asked.
        status: the document of the header, the workers and the problems.
        panel: the document of the open panel; None if it needs only the status.
        histories: the rates, by the name of a worker or service.
        newest: the time of the newest data, in seconds since 1970.
        seconds: how long the answers took.
        spacing: the least number of seconds from the begin of an answer to the begin of the next one.
        recorded: whether a recording is shown.
    """

    state: State
    status: KeptAnswer = KeptAnswer()
    panel: KeptAnswer = KeptAnswer()
    histories: Mapping[str, Document] = {}
    newest: float = 0.0
    seconds: float = 0.0
    spacing: float = 0.0
    recorded: bool = False
