"""The documents of a bundle that verbs also print: the query of each, and its source.

Owns: which queries are made, and what happens if the daemon does not answer. Must not know: archives, redaction.
Invariants: A document is the one that `brickd VERB --json` prints. After the daemon has failed to answer once, it is
not asked again: shared memory is read.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from brickd.client import client
from brickd.client.client import NoAnswer, TurnedAway
from brickd.errors import NoDaemon
from brickd.query.queries import (
    CoverageQuery,
    DiffQuery,
    EventsQuery,
    HistoryQuery,
    StatusQuery,
    StragglersQuery,
    WeightsQuery,
)
from brickd.query.query import Query, to_query
from brickd.views import fetch_answer

# The verbs in the order of the archive, with the sentence about each in the manifest.
STATUS = "status"
VERBS: dict[str, tuple[Query, str]] = {
    STATUS: (StatusQuery(), "brickd status: totals of all workers, problems first"),
    "coverage": (CoverageQuery(), "brickd coverage: which computed values were compared"),
    "weights": (WeightsQuery(), "brickd weights: whether replicas hold the same parameters"),
    "stragglers": (StragglersQuery(), "brickd stragglers: which worker is slow"),
    "events": (EventsQuery(), "brickd events: what the daemon logged"),
    "history": (HistoryQuery(), "brickd history: rates, percentiles and losses of the last hour"),
}
DIFF = "diff"
_LOG = "events"  # only a daemon has it


class DaemonAnswer(NamedTuple):
    """The daemon, as the manifest describes it. `why` is None if it answers.

    `silent` tells that there is a daemon which does not answer, so that nothing more is asked of it.
    """

    why: str | None
    silent: bool = False
    version: str | None = None
    build: str | None = None

    def document(self) -> dict[str, Any]:
        """Return the daemon as JSON."""
        return {"answers": self.why is None, "version": self.version, "build": self.build, "why": self.why}


def ask_for_daemon() -> list[Any]:
    """Ask the daemon for its version. Return the fields of a `DaemonAnswer`."""
    try:
        found = client.ask("").document()
    except NoAnswer as error:
        return list(DaemonAnswer(str(error), error.why == "silent"))
    except TurnedAway as error:
        return list(DaemonAnswer(str(error)))
    return list(DaemonAnswer(None, False, found.get("version"), found.get("build")))


def verb_document(name: str, query: Query, no_daemon: str | None) -> dict[str, Any]:
    """Return the document of a verb, the notes about it, and why the daemon did not answer.

    Args:
        name: the verb.
        query: the query of the verb.
        no_daemon: the reason not to ask the daemon; None to ask it.

    Raises:
        NoDaemon: only a daemon can answer.
    """
    if no_daemon is not None:
        if name == _LOG:
            raise NoDaemon(no_daemon)
        try:
            here = fetch_answer.from_shared_memory(f"brickd.views.{name}:answer", query)
        except NoDaemon:  # its advice is to start a daemon, even if there is one that hangs
            raise NoDaemon(no_daemon) from None
        return {"document": here.document, "notes": list(here.words), "missed": None}
    if name == _LOG:
        found = fetch_answer.received(client.ask(name, to_query(query)).document())
    else:
        found = fetch_answer.find(name, query)
    missed = None if found.missing is None else found.missing.what
    return {"document": found.document, "notes": list(found.words), "missed": missed}


def diff_query(service: str) -> Query:
    """Return the query of `brickd diff SERVICE`."""
    return DiffQuery((service,))


def doctor_document(*, silent: bool) -> dict[str, Any]:
    """Return the document of `brickd doctor`. `silent` tells that the daemon did not answer."""
    from brickd.doctor.check import results_document
    from brickd.doctor.run_checks import examine

    if silent:
        client.expect_silence()
    return results_document(examine())


def services(status: dict[str, Any]) -> list[str]:
    """Return the services in a status."""
    return sorted({worker["service"] for worker in status["workers"]})
