"""The documents of a report: every request that its page can make, answered.

Owns: the list of requests, what takes the place of an answer that fails, and what a report leaves out to stay small.
Must not know: HTML, how a view draws a document. Invariants: A document is the one that the HTTP API sends. The list
has each request of `needs` in `static/*.js`: in a report, the page has no other choices. A request that fails or is
left out has the reason in the report. All documents together have at most `BYTES_MAX`, unless the status alone has
more.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from brickd.base.units import plural
from brickd.datasources.world import World
from brickd.errors import BrickdError
from brickd.query import queries
from brickd.query.query import Query, from_query
from brickd.views import fetch_answer, hang
from brickd.views.common import Answer
from brickd.views.fetch_answer import FetchedAnswer, Reading

Parameters = dict[str, str | int | bool]
Answers = Callable[[str, Query], dict[str, Any]]
# The name of a brick with its history, or with the error in place of it.
BrickHistory = tuple[str, dict[str, Any] | BrickdError]
Histories = Callable[[Sequence[str]], Iterable[BrickHistory]]

STATUS = "status"
_HISTORY: Parameters = {"over": "1h", "every": "1m"}
_BRICKS: Parameters = {"top": 100_000}
_CELLS: Parameters = {"by": "worker", "top": 4096}
_TREE: Parameters = {}
_LAYERS: Parameters = {"layers": True}
_COVERAGE: Parameters = {}
# Each view has the name of its verb, and its query the name of the view.
_REQUESTS: tuple[tuple[str, Parameters], ...] = (
    (STATUS, {}),
    ("bricks", _BRICKS),
    ("bricks", _CELLS),
    ("tree", _TREE),
    ("tree", _LAYERS),
    ("coverage", _COVERAGE),
    ("hang", {"watch": "0.5s"}),
    ("history", _HISTORY),
)
# With a history of their own, which takes 15 KB, and half a second of a daemon.
BRICKS_MAX = 50
BRICKS_SECONDS = 20.0
_LEFT_OUT = "the report has the latency of fewer bricks (brickd history --brick NAME)"
# With the scripts of the page, which have 0.17 MB, a report stays below 3 MB: mail and chat accept such a file.
BYTES_MAX = 2_800_000
# Which parameters take the place of those of a request while the documents are too large, in this order: the least
# useful first. None: the document is left out. A document of fewer rows has the sum of the others in its `rest`.
_CUTS: tuple[tuple[Parameters, Parameters | None], ...] = (
    (_CELLS, {"by": "worker", "top": 2048}),
    (_CELLS, {"by": "worker", "top": 1024}),
    (_CELLS, {"by": "worker", "top": 256}),
    (_LAYERS, None),
    (_BRICKS, {"top": 1000}),
    (_BRICKS, {"top": 200}),
    (_TREE, None),
    (_COVERAGE, None),
)


class ReportDocument(NamedTuple):
    """A request of the page, and its answer: a document, or the error in place of it."""

    view: str
    parameters: Parameters
    document: dict[str, Any] | None
    error: str | None = None

    def embedded(self) -> str:
        """Return the request as the page reads it: JSON in which no string can end an element, or begin a comment."""
        return json.dumps(self._asdict(), separators=(",", ":")).replace("<", "\\u003c")


def report_documents(
    answers: Answers,
    histories: Histories,
    bricks_seconds: float = BRICKS_SECONDS,
    bytes_max: int = BYTES_MAX,
) -> list[ReportDocument]:
    """Answer all requests; the status comes first. For the histories of single bricks, there is a limit of time.

    Raises:
        BrickdError: there is no status.
    """
    status = answers(STATUS, queries.StatusQuery())
    found = [ReportDocument(STATUS, {}, status), *(_answered(answers, *each) for each in _REQUESTS[1:])]
    found = _cut(answers, found, bytes_max)
    left = bytes_max - sum(len(each.embedded()) for each in found)
    bricks = next(each.document for each in found if each.parameters is _BRICKS)
    named = dict.fromkeys(brick["name"] for brick in bricks["bricks"]) if bricks is not None else {}
    made = _histories(histories, [*named][:BRICKS_MAX], time.monotonic() + bricks_seconds)
    for name in named:
        absent = ReportDocument("history", {**_HISTORY, "brick": name}, None, _LEFT_OUT)
        for each in (made.get(name, absent), absent):
            if (length := len(each.embedded())) <= left:
                left -= length
                found.append(each)
                break
    return found


def _histories(histories: Histories, bricks: Sequence[str], until: float) -> dict[str, ReportDocument]:
    made: dict[str, ReportDocument] = {}
    if bricks and time.monotonic() < until:
        for name, history in histories(bricks):
            document, error = (None, str(history)) if isinstance(history, BrickdError) else (history, None)
            made[name] = ReportDocument("history", {**_HISTORY, "brick": name}, document, error)
            if time.monotonic() >= until:
                break
    return made


def _cut(answers: Answers, found: Sequence[ReportDocument], bytes_max: int) -> list[ReportDocument]:
    """Shorten documents, or leave them out, until all of them have at most `bytes_max`."""
    cut = [*found]
    for parameters, fewer in _CUTS:
        if sum(len(each.embedded()) for each in cut) <= bytes_max:
            break
        place = next(place for place, each in enumerate(cut) if each.parameters is parameters)
        view = cut[place].view
        if fewer is None:
            cut[place] = ReportDocument(view, parameters, None, _too_large(view, parameters))
        else:
            cut[place] = _answered(answers, view, fewer)._replace(parameters=parameters)
    return cut


def _too_large(view: str, parameters: Parameters) -> str:
    command = " ".join((f"brickd {view}", *(f"--{name}" for name in parameters)))
    return f"it is too large for a report ({command})"


def left_out(documents: Sequence[ReportDocument]) -> list[str]:
    """Return a line about each part that a report does not have. A brick without work in the period has no latency."""
    lines = [f"{each.view}: {each.error}" for each in documents if each.error and "brick" not in each.parameters]
    for each in documents:
        if each.view != "bricks" or each.document is None:
            continue
        rest: int = each.document["rest"]["bricks"]
        if each.parameters is _CELLS:
            lines += [f"workers: {plural(rest, 'cell')} with the least self time"] * (rest > 0)
            continue
        lines += [f"bricks: {plural(rest, 'brick')} with the least self time"] * (rest > 0)
        named = len({brick["name"] for brick in each.document["bricks"]}) + rest
        absent = named - sum("brick" in other.parameters and other.error != _LEFT_OUT for other in documents)
        lines += [f"latency: {absent:,} of {plural(named, 'brick')}"] * (absent > 0)
    return lines


def _answered(answers: Answers, view: str, parameters: Parameters) -> ReportDocument:
    query = from_query(getattr(queries, f"{view.capitalize()}Query"), _texts(parameters))
    try:
        return ReportDocument(view, parameters, answers(view, query))
    except BrickdError as error:
        return ReportDocument(view, parameters, None, str(error))


def _texts(parameters: Parameters) -> list[tuple[str, str]]:
    return [(name, str(value).lower() if isinstance(value, bool) else str(value)) for name, value in parameters.items()]


@contextmanager
def answers_of(recordings: Sequence[str], reading: Reading) -> Iterator[tuple[Answers, Histories]]:
    """Yield functions that answer from recordings, or without any from the machine as it is now."""
    if not recordings:
        yield _now, _histories_now
        return
    with fetch_answer.recorded(recordings, reading) as found:

        def histories(bricks: Sequence[str]) -> Iterator[BrickHistory]:
            for brick, each in found.histories(from_query(queries.HistoryQuery, _texts(_HISTORY)), bricks).items():
                yield brick, each if isinstance(each, BrickdError) else _with_words(each)

        # A recording has no second look at open spans: its last two snapshots are compared.
        yield (
            lambda view, query: _with_words(found(_RECORDED.get(view, f"brickd.views.{view}:answer"), query)),
            histories,
        )


def _histories_now(bricks: Sequence[str]) -> Iterator[BrickHistory]:
    for brick in bricks:
        found = _answered(_now, "history", {**_HISTORY, "brick": brick})
        yield brick, BrickdError(found.error) if found.document is None else found.document


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
