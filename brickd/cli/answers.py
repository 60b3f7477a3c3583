"""Where a verb's answer comes from: the daemon, or without one shared memory.

Owns: the choice between them. Must not know: any one view, how a daemon is asked. Invariants: whoever answers, it is
the same document; that a daemon is there and does not answer is never passed over in silence.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from brickd import client
from brickd.cli.output import say
from brickd.cli.waiting import Passes
from brickd.client import NoAnswer, TurnedAway
from brickd.health import Missing
from brickd.views.answer import Answer, Document
from brickd.views.question import Asked, Question, to_query
from brickd.world import SharedMemory, World


@dataclass(frozen=True, slots=True)
class Found:
    """An answer.

    Attributes:
        document: the answer itself.
        words: what is to be said beside it.
        missing: a daemon that was there; None where one answered, or none is known of.
    """

    document: Document
    words: tuple[str, ...]
    missing: Missing | None = None


def find(
    name: str,
    view: Callable[[World, Asked], Answer],
    question: Asked,
    *,
    seconds: float = 0.0,
    meanwhile: Callable[[Passes], None] | None = None,
) -> Found:
    """Answer a question.

    Args:
        name: of the view, as the daemon calls it.
        view: builds the document here.
        question: what is asked.
        seconds: how long the daemon takes in any case.
        meanwhile: lets that time pass.
    """
    missing = None
    try:
        pending = client.ask(name, to_query(question), seconds=seconds)
        if meanwhile is not None:
            meanwhile(pending.arrives)
        return _told(pending.document())
    except NoAnswer as error:
        # Nobody misses a daemon that never was, or that is for other segments.
        if error.why not in ("none", "elsewhere"):
            missing = Missing(error.what, ended=error.why == "stale")
    except TurnedAway as error:
        missing = Missing(str(error), ended=False)
    here = view(SharedMemory(), question)
    # One that has ended is missed by those alone who check.
    said = (f"{missing.what}; shared memory is read instead",) if missing is not None and not missing.ended else ()
    return Found(here.document, said + here.words, missing)


def asked(
    name: str,
    view: Callable[[World, Asked], Answer],
    question: Asked,
    *,
    seconds: float = 0.0,
    meanwhile: Callable[[Passes], None] | None = None,
) -> Document:
    """As `find`; what is to be said is said."""
    found = find(name, view, question, seconds=seconds, meanwhile=meanwhile)
    for words in found.words:
        say(words)
    return found.document


def told(name: str, question: Question, *, post: bool = False) -> Document:
    """What the daemon alone can answer, or do.

    Raises:
        NoAnswer: there is none.
    """
    found = _told(client.ask(name, to_query(question), post=post).document())
    for words in found.words:
        say(words)
    return found.document


def _told(document: dict[str, Any]) -> Found:
    return Found(document, tuple(document.pop("words", ())))
