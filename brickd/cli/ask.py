"""Gets the answer to a verb's query, and prints the answer's notes on stderr.

Owns: the notes, and the progress display. Must not know: individual views, where an answer comes from.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from brickd.cli import progress
from brickd.cli.output import print_message
from brickd.client import client
from brickd.query.query import Query, to_query
from brickd.views import fetch_answer
from brickd.views.fetch_answer import FetchedAnswer

if TYPE_CHECKING:
    from brickd.views.common import Document


def asked(name: str, query: Query, *, recordings: Sequence[str] | None = ()) -> Document:
    """Answer a query, and print the notes about the answer. `recordings` is None for a verb that takes none."""
    return noted(fetch_answer.find(name, query, recordings=recordings, reading=progress.reading))


def ask_daemon(name: str, query: Query, *, post: bool = False) -> Document:
    """Send the daemon a query or an order that only a daemon can answer.

    Raises:
        NoAnswer: there is no daemon.
    """
    return noted(fetch_answer.received(client.ask(name, to_query(query), post=post).document()))


def noted(answer: FetchedAnswer) -> Document:
    """Print the notes about an answer; return its document."""
    for words in answer.words:
        print_message(words)
    return answer.document
