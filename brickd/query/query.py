"""Queries: what may be asked, with which parameters.

Owns: the form of a query, its way into a query string and back. Must not know: any view, click, HTTP. Invariants: each
value of a query that exists was validated, wherever it came from; an unknown key, or one that is given twice, is
refused; a query that is read from its own query string is the same query.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, TypeVar

from brickd.errors import WrongQuestion
from brickd.query.parameters import Choice, Names, Parameter

ABOUT_WORKERS = Names("names of workers or services", metavar="[WORKER|SERVICE]...", key="name", positional=True)

# The time over which records are counted, in slots of ten seconds.
START = "start"
SLOTS = {"10s": 1, "60s": 6}
OVER = Choice([*SLOTS, START], "Count the last 10 s, the last 60 s, or everything since each worker's start.")


def given(by: Parameter, default: Any = MISSING) -> Any:
    """A field of a query: its parameter and its default."""
    return field(default=default, metadata={"parameter": by})


@dataclass(frozen=True)
class Query:
    """A query; each subclass declares its parameters, and the rules between them."""

    def __post_init__(self) -> None:
        for name, parameter in parameters(type(self)).items():
            value = getattr(self, name)
            if not parameter.takes(value) and not (value is None and default(type(self), name) is None):
                raise WrongQuestion(f"{key(name, parameter)} is {_shown(value)}, expected {parameter.wanted}")


Asked = TypeVar("Asked", bound=Query)


def parameters(kind: type[Query]) -> dict[str, Parameter]:
    """The parameters of a query, by the names of its fields."""
    return {each.name: each.metadata["parameter"] for each in fields(kind)}


def key(name: str, parameter: Parameter) -> str:
    """The name of a field's parameter in a URL, and of its long option."""
    return parameter.key or name.replace("_", "-")


def default(kind: type[Query], name: str) -> Any:
    """The default of a field; MISSING: it has none."""
    return kind.__dataclass_fields__[name].default


def from_query(kind: type[Asked], pairs: Iterable[tuple[str, str]]) -> Asked:
    """Parse the pairs of a query string.

    Raises:
        WrongQuestion: a parameter or a value that it does not have.
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
            raise WrongQuestion(f"{given_key} is given more than once")
        else:
            values[name] = parameter.read(text)
    for required, name in names.items():
        if name not in values and default(kind, name) is MISSING:
            raise WrongQuestion(f"no {required} is given, expected {parameters(kind)[name].wanted}")
    return kind(**values)


def to_query(question: Query) -> list[tuple[str, str]]:
    """The pairs that ask the same, without defaults."""
    pairs: list[tuple[str, str]] = []
    for name, parameter in parameters(type(question)).items():
        value = getattr(question, name)
        if value != default(type(question), name):
            values = value if parameter.several else [value]
            pairs += [(key(name, parameter), parameter.write(each)) for each in values]
    return pairs


def _shown(value: object) -> str:
    """The first 100 characters of a value."""
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:99]}…"
