"""Queries: a base class with validated parameters.

Owns: how a query is declared, and how it is converted to a query string and back. Must not know: views, click, HTTP.
Invariants: Every value of a query is validated, whatever its source. An unknown key, or a key that is given twice, is
refused. If a query is converted to a query string and parsed again, the result is an equal query.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import MISSING
from typing import Any, ClassVar, NamedTuple, Self, TypeVar, dataclass_transform

from brickd.errors import WrongQuestion
from brickd.query.parameters import Names, Parameter, Period, Time

ABOUT_WORKERS = Names("names of workers or services", metavar="[WORKER|SERVICE]...", key="name", positional=True)

# The periods over which totals may be counted. The daemon keeps windows of a minute in steps of 10 seconds. The file of
# the last day keeps an hour in these steps, and 48 hours in steps of 5 minutes.
START = "start"
MINUTE_S, DAYS_S = 60.0, 48 * 3600.0
OVER = Period(
    START,
    10,
    DAYS_S,
    "Count the last DURATION, from 10s to 48h, or everything since each worker's start. With --at TIME: the DURATION"
    " before TIME.",
    metavar="DURATION|start",
)
LIVE = Period(START, 10, MINUTE_S, "Count the last DURATION, from 10s to 60s, or everything.", metavar="DURATION|start")
AT = Time(
    "Count the slot that contains TIME. A slot of the last hour has 10 seconds, an older slot has 5 minutes."
    " With --over DURATION: the DURATION before TIME."
)
FROM = Time("Count from TIME on, up to the time of --to. Without --to: up to now.", key="from")
TO = Time("Count up to TIME, from the time of --from on. Needs --from.", key="to")


class _Given(NamedTuple):
    parameter: Parameter
    default: Any


def given(by: Parameter, *, default: Any = MISSING) -> Any:
    """Declare a field of a query: its parameter and its default."""
    return _Given(by, default)


@dataclass_transform(frozen_default=True, field_specifiers=(given,))
class Query:
    """A query. Each subclass declares its parameters; its method `rules` refuses values that exclude each other.

    A query works like a frozen dataclass, but a dataclass takes 1 ms to define, and every command would wait for 25 of
    them.
    """

    _given: ClassVar[dict[str, _Given]] = {}

    def __init_subclass__(cls) -> None:
        cls._given = cls._given | {name: each for name, each in vars(cls).items() if isinstance(each, _Given)}

    def __init__(self, *values: Any, **named: Any) -> None:
        named |= dict(zip(self._given, values, strict=False))
        if len(values) > len(self._given) or not named.keys() <= self._given.keys():
            raise TypeError(f"{type(self).__name__} has only the fields {', '.join(self._given) or 'none'}")
        for name, (parameter, unless) in self._given.items():
            value = named.get(name, unless)
            if value is MISSING:
                raise TypeError(f"{type(self).__name__} needs {name}")
            if not parameter.takes(value) and not (value is None and unless is None):
                refused = _shown(_refused(parameter, value))
                raise WrongQuestion(f"{key(name, parameter)} is {refused}, expected {parameter.expected(value)}")
            vars(self)[name] = value
        self.rules()

    def rules(self) -> None:
        """Raise WrongQuestion if the values exclude each other."""

    def replaced(self, **named: Any) -> Self:
        """Return a copy of the query with other values in some fields."""
        return type(self)(**vars(self) | named)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a query is immutable: {name} cannot be set")

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((type(self), *vars(self).values()))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"


Asked = TypeVar("Asked", bound=Query)


def parameters(kind: type[Query]) -> dict[str, Parameter]:
    """Return the parameters of a query, by field name."""
    return {name: each.parameter for name, each in kind._given.items()}


def key(name: str, parameter: Parameter) -> str:
    """Return the name of a field's parameter in a URL and as a long option."""
    return parameter.key or name.replace("_", "-")


def default(kind: type[Query], name: str) -> Any:
    """Return the default of a field; MISSING if it has none."""
    return kind._given[name].default


def from_query(kind: type[Asked], pairs: Iterable[tuple[str, str]]) -> Asked:
    """Parse the pairs of a query string.

    Raises:
        WrongQuestion: a parameter is unknown, or a value is invalid or missing.
    """
    names = {key(name, parameter): name for name, parameter in parameters(kind).items()}
    values: dict[str, Any] = {}
    for given_key, text in pairs:
        if given_key not in names:
            raise WrongQuestion(f"no parameter {_shown(given_key)}, expected {' or '.join(names) or 'none'}")
        name, parameter = names[given_key], parameters(kind)[names[given_key]]
        if parameter.several:
            values[name] = (*values.get(name, ()), parameter.read(text))
        elif name in values:
            raise WrongQuestion(f"{given_key} is given more than once, expected once")
        else:
            values[name] = parameter.read(text)
    for required, name in names.items():
        if name not in values and default(kind, name) is MISSING:
            raise WrongQuestion(f"no {required} is given, expected {parameters(kind)[name].wanted}")
    return kind(**values)


def to_query(query: Query) -> list[tuple[str, str]]:
    """Return the pairs of a query's query string, without values that equal the default."""
    pairs: list[tuple[str, str]] = []
    for name, parameter in parameters(type(query)).items():
        value = getattr(query, name)
        if value != default(type(query), name):
            values = value if parameter.several else [value]
            pairs += [(key(name, parameter), parameter.write(each)) for each in values]
    return pairs


def _refused(parameter: Parameter, value: Any) -> Any:
    """Return the first of several values that the parameter does not accept; otherwise the value itself."""
    if parameter.several and isinstance(value, tuple):
        return next((each for each in value if not parameter.takes((each,))), value)
    return value


def _shown(value: object) -> str:
    """Return a value as text, at most 100 characters of it."""
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:99]}…"
