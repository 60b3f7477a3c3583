"""Where a verb's answer comes from: the daemon, without one shared memory, or recordings.

Owns: the choice between them. Must not know: any one view, how a daemon is asked. Invariants: whoever answers, it is
the same document; that a daemon is there and does not answer is never passed over in silence; where one answers,
nothing is loaded that reads segments or builds views.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from brickd import client
from brickd.cli import waiting
from brickd.cli.commands import rewritten
from brickd.cli.output import say
from brickd.cli.waiting import Passes
from brickd.client import NoAnswer, TurnedAway
from brickd.health import Missing
from brickd.questions.question import Question, to_query

if TYPE_CHECKING:
    from brickd.views.answer import Answer, Document
    from brickd.world import World


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
    question: Question,
    *,
    recordings: Sequence[str] = (),
    view: str | None = None,
    seconds: float = 0.0,
    meanwhile: Callable[[Passes], None] | None = None,
) -> Found:
    """Answer a question.

    Args:
        name: of the view, as the daemon calls it.
        question: what is asked.
        recordings: that are asked, and nobody else; none: the machine is, as it is now.
        view: the module whose `answer` builds the document here; the view of that name, if none is given.
        seconds: how long the daemon takes in any case.
        meanwhile: lets that time pass.
    """
    if recordings:
        return _recorded(view or f"brickd.views.{name}", question, recordings)
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
    here = _here(view or f"brickd.views.{name}", question)
    # One that has ended is missed by those alone who check.
    said = (f"{missing.what}; shared memory is read instead",) if missing is not None and not missing.ended else ()
    return Found(here.document, said + here.words, missing)


def asked(
    name: str,
    question: Question,
    *,
    recordings: Sequence[str] = (),
    view: str | None = None,
    seconds: float = 0.0,
    meanwhile: Callable[[Passes], None] | None = None,
) -> Document:
    """As `find`; what is to be said is said."""
    found = find(name, question, recordings=recordings, view=view, seconds=seconds, meanwhile=meanwhile)
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


def _here(view: str, question: Question) -> Answer:
    from brickd.world import SharedMemory

    return _answer(view)(SharedMemory(), question)


def _recorded(view: str, question: Question, recordings: Sequence[str]) -> Found:
    from brickd.recording.world import opened

    with waiting.reading() as reads, opened(recordings, reads) as world:
        said = _answer(view)(world, question)
        document = rewritten({**said.document, "recording": world.document()})
        return Found(document, world.words() + said.words)


def _answer(view: str) -> Callable[[World, Question], Answer]:
    answer: Callable[[World, Question], Answer] = importlib.import_module(view).answer
    return answer


def _told(document: dict[str, Any]) -> Found:
    return Found(document, tuple(document.pop("words", ())))
