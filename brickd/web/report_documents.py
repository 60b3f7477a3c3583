"""The documents of a report: every request that its page can make, answered.

Owns: the list of requests, and what takes the place of an answer that fails. Must not know: HTML, how a view draws a
document. Invariants: A document is the one that the HTTP API sends. The list has each request of `needs` in
`static/*.js`: in a report, the page has no other choices. A request that fails has its error in the report.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from brickd.datasources.world import World
from brickd.errors import BrickdError
from brickd.query import queries
from brickd.query.query import Query, from_query
from brickd.views import fetch_answer, hang
from brickd.views.common import Answer
from brickd.views.fetch_answer import FetchedAnswer, Reading

Parameters = dict[str, str | int | bool]
Answers = Callable[[str, Query], dict[str, Any]]

STATUS = "status"
_HISTORY: Parameters = {"over": "1h", "every": "1m"}
_BRICKS: Parameters = {"top": 100_000}
# Each view has the name of its verb, and its query the name of the view.
_REQUESTS: tuple[tuple[str, Parameters], ...] = (
    (STATUS, {}),
    ("bricks", _BRICKS),
    ("bricks", {"by": "worker", "top": 4096}),
    ("tree", {}),
    ("tree", {"layers": True}),
    ("coverage", {}),
    ("hang", {"watch": "0.5s"}),
    ("history", _HISTORY),
)
# With a history of their own, which takes 15 KB. For a recording, each history reads the whole recording.
BRICKS_MAX = 50
BRICKS_SECONDS = 20.0
_LEFT_OUT = "the report has the latency of fewer bricks (brickd history --brick NAME)"


class ReportDocument(NamedTuple):
    """A request of the page, and its answer: a document, or the error in place of it."""

    view: str
    parameters: Parameters
    document: dict[str, Any] | None
    error: str | None = None

    def embedded(self) -> dict[str, Any]:
        """Return the request as the page reads it."""
        return self._asdict()


def report_documents(answers: Answers, bricks_seconds: float = BRICKS_SECONDS) -> list[ReportDocument]:
    """Answer all requests; the status comes first. For the histories of single bricks, there is a limit of time.

    Raises:
        BrickdError: there is no status.
    """
    status = answers(STATUS, queries.StatusQuery())
    found = [ReportDocument(STATUS, {}, status), *(_answered(answers, *each) for each in _REQUESTS[1:])]
    bricks = next(each.document for each in found if each.parameters is _BRICKS)
    named = dict.fromkeys(brick["name"] for brick in bricks["bricks"]) if bricks is not None else {}
    until = time.monotonic() + bricks_seconds
    for number, name in enumerate(named):
        parameters: Parameters = {**_HISTORY, "brick": name}
        if number < BRICKS_MAX and time.monotonic() < until:
            found.append(_answered(answers, "history", parameters))
        else:
            found.append(ReportDocument("history", parameters, None, _LEFT_OUT))
    return found


def _answered(answers: Answers, view: str, parameters: Parameters) -> ReportDocument:
    texts = (
        (name, str(value).lower() if isinstance(value, bool) else str(value)) for name, value in parameters.items()
    )
    query = from_query(getattr(queries, f"{view.capitalize()}Query"), texts)
    try:
        return ReportDocument(view, parameters, answers(view, query))
    except BrickdError as error:
        return ReportDocument(view, parameters, None, str(error))


@contextmanager
def answers_of(recordings: Sequence[str], reading: Reading) -> Iterator[Answers]:
    """Yield a function that answers from recordings, or without any from the machine as it is now."""
    if not recordings:
        yield _now
        return
    with fetch_answer.recorded(recordings, reading) as found:
        # A recording has no second look at open spans: its last two snapshots are compared.
        yield lambda view, query: _with_words(found(_RECORDED.get(view, f"brickd.views.{view}:answer"), query))


_RECORDED = {"hang": "brickd.views.hang:of_recording"}
_WATCHED = {"hang": f"{__name__}:watched"}


def _now(view: str, query: Query) -> dict[str, Any]:
    seconds = query.watch if isinstance(query, queries.HangQuery) else 0.0
    return _with_words(fetch_answer.find(view, query, recordings=None, view=_WATCHED.get(view), seconds=seconds))


def _with_words(found: FetchedAnswer) -> dict[str, Any]:
    """Return a document as the HTTP API sends it."""
    return {**found.document, "words": list(found.words)}


def watched(world: World, query: queries.HangQuery) -> Answer:
    """Look at the workers twice without a daemon."""
    before = hang.look(world, query)
    if before.workers:
        time.sleep(query.watch)
    return hang.answer(world, query, before)
