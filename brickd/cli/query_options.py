"""The command-line arguments and options of a query.

Owns: the translation of a query into arguments and options. Must not know: individual queries, where a query is
answered. Invariant: the command line accepts exactly the parameters of the query.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import MISSING
from typing import Any, TypeVar

import click

from brickd.cli.completion import Complete, complete_workers, with_recordings
from brickd.query.parameters import Choice, Parameter, Switch
from brickd.query.query import Query, default, key, parameters
from brickd.query.verbs import VERBS
from brickd.recording.mistaken_files import named_files
from brickd.recording.rotation import parted

Result = TypeVar("Result")
Verb = Callable[..., Result]


def asks(
    kind: type[Query], complete: Complete = complete_workers, *, keyword: str = "query", recorded: bool | None = None
) -> Callable[[Verb[Result]], Verb[Result]]:
    """Give a verb the arguments and options of a query.

    Args:
        kind: the kind of query.
        complete: completes the arguments of the verb.
        keyword: the verb's parameter for the query.
        recorded: whether the verb also accepts recordings (as `recordings`); None if the query declares it.
    """
    takes_recordings = kind.__name__ in (verb.query for verb in VERBS.values()) if recorded is None else recorded

    def decorate(verb: Verb[Result]) -> Verb[Result]:
        @functools.wraps(verb)
        def with_query(**given: Any) -> Result:
            if takes_recordings:
                given |= _of_recordings(kind, given)
            query = kind(**{name: given.pop(name) for name in parameters(kind)})
            return verb(**{keyword: query}, **given)

        asking: Verb[Result] = with_query
        # click lists the options in the reverse order of their declaration.
        for name, parameter in reversed(parameters(kind).items()):
            unless = default(kind, name)
            if not parameter.positional:
                asking = _option(name, parameter, unless)(asking)
            elif not takes_recordings:
                asking = click.argument(
                    name,
                    nargs=-1 if parameter.several else 1,
                    required=unless is MISSING,
                    metavar=parameter.metavar,
                    shell_complete=complete,
                )(asking)
        return _recordings(kind, complete)(asking) if takes_recordings else asking

    return decorate


def _positional(kind: type[Query]) -> tuple[str, Parameter] | None:
    return next(((name, each) for name, each in parameters(kind).items() if each.positional), None)


def _recordings(kind: type[Query], complete: Complete) -> Callable[[Verb[Result]], Verb[Result]]:
    """Declare one argument that takes recordings as well as the names that the query accepts."""
    positional = _positional(kind)
    metavar = " ".join(["[RECORDING]...", *([positional[1].metavar or ""] if positional else [])])
    return click.argument(
        "recordings", nargs=-1, metavar=metavar, shell_complete=with_recordings(complete if positional else None)
    )


def _of_recordings(kind: type[Query], given: dict[str, Any]) -> dict[str, Any]:
    recordings, words = parted(given["recordings"])
    positional = _positional(kind)
    if positional is not None and positional[1].several:
        return {"recordings": recordings, positional[0]: words}
    if len(words) > (positional is not None):
        file = named_files(words[-1:])
        wanted = "at most one name" if positional is not None else "only recordings (brickd record -o FILE writes one)"
        raise click.UsageError(f"{file}unexpected argument {words[-1]}{'' if file else f', expected {wanted}'}")
    return {"recordings": recordings} | ({positional[0]: next(iter(words), None)} if positional else {})


def _option(name: str, parameter: Parameter, unless: Any) -> Callable[[Verb[Result]], Verb[Result]]:
    spelled = [*filter(None, [parameter.short]), f"--{key(name, parameter)}", name]
    if isinstance(parameter, Switch):
        return click.option(*spelled, is_flag=True, help=parameter.help)
    return click.option(
        *spelled,
        type=click.Choice(parameter.of) if isinstance(parameter, Choice) else ParameterType(parameter),
        default=unless if unless in (MISSING, None) or parameter.several else parameter.write(unless),
        show_default=unless not in (None, ()),
        multiple=parameter.several,
        metavar=parameter.metavar,
        help=parameter.help,
    )


class ParameterType(click.ParamType[Any]):
    """A click type that leaves the parsing to a parameter of the query, so that errors name the parameter's option."""

    name = "value"

    def __init__(self, parameter: Parameter) -> None:
        self.parameter = parameter

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Convert a value; raise a usage error if the parameter does not accept it."""
        found = self.parameter.read(value) if isinstance(value, str) else value
        if not self.parameter.takes((found,) if self.parameter.several else found):
            seen = "''" if value == "" else value
            self.fail(f"{seen} is not {self.parameter.expected(value)}", param, ctx)
        return found
