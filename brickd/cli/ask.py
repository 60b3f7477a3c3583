"""Answers for the verbs: what is to be said beside one goes to stderr.

Owns: that, and the progress of what takes long. Must not know: any one view, where an answer comes from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from brickd.cli import progress
from brickd.cli.output import say
from brickd.client import client
from brickd.query.query import Query, to_query
from brickd.views import fetch_answer
from brickd.views.fetch_answer import Passes

if TYPE_CHECKING:
    from brickd.views.common import Document


def asked(
    name: str,
    question: Query,
    *,
    recordings: Sequence[str] = (),
    view: str | None = None,
    seconds: float = 0.0,
    meanwhile: Callable[[Passes], None] | None = None,
) -> Document:
    """Answer a question, and print the words beside the answer to stderr."""
    found = fetch_answer.find(
        name,
        question,
        recordings=recordings,
        view=view,
        seconds=seconds,
        meanwhile=meanwhile,
        reading=progress.reading,
    )
    for words in found.words:
        say(words)
    return found.document


def told(name: str, question: Query, *, post: bool = False) -> Document:
    """What the daemon alone can answer, or do.

    Raises:
        NoAnswer: there is none.
    """
    found = fetch_answer.told(client.ask(name, to_query(question), post=post).document())
    for words in found.words:
        say(words)
    return found.document
