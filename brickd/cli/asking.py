"""How a verb asks its question.

Owns: the arguments and options that a question becomes, and the way to its answer. Must not know: any one question.
Invariants: the command line takes what the question declares, and nothing else; what is to be said beside a document is
said on stderr.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import MISSING
from typing import Any, TypeVar

import click

from brickd import client
from brickd.cli.output import say
from brickd.cli.tab import Complete, complete_workers
from brickd.cli.waiting import Passes
from brickd.client import NoAnswer, TurnedAway
from brickd.views.answer import Answer, Document
from brickd.views.parameter import Choice, Parameter, Switch
from brickd.views.question import Asked, Question, default, parameters, to_query
from brickd.world import SharedMemory, World

Result = TypeVar("Result")
Verb = Callable[..., Result]

# Why nobody misses a daemon: there is none, or it is one for other segments.
_NOT_MISSED = ("none", "stale", "elsewhere")


def asks(kind: type[Question], complete: Complete = complete_workers) -> Callable[[Verb[Result]], Verb[Result]]:
    """Give a verb the arguments and options of a question; it receives one keyword, `question`.

    Args:
        kind: of question.
        complete: offers words for its arguments at a TAB.
    """

    def decorate(verb: Verb[Result]) -> Verb[Result]:
        @functools.wraps(verb)
        def with_question(**given: Any) -> Result:
            question = kind(**{name: given.pop(name) for name in parameters(kind)})
            return verb(question=question, **given)

        asking: Verb[Result] = with_question
        # click puts what is declared last first.
        for name, parameter in reversed(parameters(kind).items()):
            unless = default(kind, name)
            asking = (_argument if parameter.positional else _option)(name, parameter, unless, complete)(asking)
        return asking

    return decorate


def asked(
    name: str,
    view: Callable[[World, Asked], Answer],
    question: Asked,
    *,
    seconds: float = 0.0,
    meanwhile: Callable[[Passes], None] | None = None,
) -> Document:
    """The document that answers a question: the daemon's, or without one that of shared memory.

    What is to be said beside it is said.

    Args:
        name: of the view, as the daemon calls it.
        view: builds the document here.
        question: what is asked.
        seconds: how long the daemon takes in any case.
        meanwhile: lets that time pass.
    """
    answer = _of_the_daemon(name, question, seconds, meanwhile) or view(SharedMemory(), question)
    for words in answer.words:
        say(words)
    return answer.document


def _of_the_daemon(
    name: str, question: Question, seconds: float, meanwhile: Callable[[Passes], None] | None
) -> Answer | None:
    """What the daemon answers; None where there is none, which is said where one is expected."""
    try:
        pending = client.ask(name, to_query(question), seconds=seconds)
        if meanwhile is not None:
            meanwhile(pending.arrives)
        document = pending.document()
    except NoAnswer as error:
        if error.why not in _NOT_MISSED:
            say(f"{error}; shared memory is read instead")
        return None
    except TurnedAway as error:
        say(f"{error}; shared memory is read instead")
        return None
    return Answer(document, tuple(document.pop("words")))


def _argument(
    name: str, parameter: Parameter, unless: Any, complete: Complete
) -> Callable[[Verb[Result]], Verb[Result]]:
    return click.argument(
        name,
        nargs=-1 if parameter.several else 1,
        required=unless is MISSING,
        metavar=parameter.metavar,
        shell_complete=complete,
    )


def _option(name: str, parameter: Parameter, unless: Any, _: Complete) -> Callable[[Verb[Result]], Verb[Result]]:
    spelled = [*filter(None, [parameter.short]), f"--{parameter.key or name}", name]
    if isinstance(parameter, Switch):
        return click.option(*spelled, is_flag=True, help=parameter.help)
    return click.option(
        *spelled,
        type=click.Choice(parameter.of) if isinstance(parameter, Choice) else Read(parameter),
        default=unless,
        show_default=unless is not None,
        metavar=parameter.metavar,
        help=parameter.help,
    )


class Read(click.ParamType[Any]):
    """A value as a parameter reads and judges it, so that it is refused at its option."""

    name = "value"

    def __init__(self, parameter: Parameter) -> None:
        self.parameter = parameter

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The value; a usage error where the parameter does not take it."""
        found = self.parameter.read(value) if isinstance(value, str) else value
        if not self.parameter.takes(found):
            self.fail(f"{value} is not {self.parameter.wanted}", param, ctx)
        return found
