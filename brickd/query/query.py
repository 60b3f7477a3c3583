"""Questions: what may be asked, with which parameters.

Owns: the form of a question, its way into a query and back. Must not know: any view, click, HTTP. Invariants: each
value of a question that exists was judged, wherever it came from; what is not known, or given twice, is refused; a
question that is read from its own query is the same question.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, TypeVar

from brickd.errors import WrongQuestion
from brickd.query.parameters import Choice, Names, Parameter

ABOUT_WORKERS = Names("names of workers or services", metavar="[WORKER|SERVICE]...", key="name", positional=True)

# Since when what was recorded is counted. So many slots of ten seconds have the windows.
START = "start"
SLOTS = {"10s": 1, "60s": 6}
OVER = Choice([*SLOTS, START], "Count the last 10 s, the last 60 s, or everything since each worker's start.")


def given(by: Parameter, default: Any = MISSING) -> Any:
    """A field of a question: what may be given for it, and what holds where nothing is."""
    return field(default=default, metadata={"parameter": by})


@dataclass(frozen=True)
class Query:
    """What is asked; each subclass declares its parameters, and the rules between them."""

    def __post_init__(self) -> None:
        for name, parameter in parameters(type(self)).items():
            value = getattr(self, name)
            if not parameter.takes(value) and not (value is None and default(type(self), name) is None):
                raise WrongQuestion(f"{parameter.key or name} is {_shown(value)}, expected {parameter.wanted}")


Asked = TypeVar("Asked", bound=Query)


def parameters(kind: type[Query]) -> dict[str, Parameter]:
    """The parameters of a question, by the names of its fields."""
    return {each.name: each.metadata["parameter"] for each in fields(kind)}


def default(kind: type[Query], name: str) -> Any:
    """What holds where nothing is given for a field; MISSING where something must be."""
    return kind.__dataclass_fields__[name].default


def from_query(kind: type[Asked], pairs: Iterable[tuple[str, str]]) -> Asked:
    """The question that a query asks.

    Raises:
        WrongQuestion: a parameter or a value that it does not have.
    """
    names = {parameter.key or name: name for name, parameter in parameters(kind).items()}
    found: dict[str, Any] = {}
    for key, text in pairs:
        if key not in names:
            raise WrongQuestion(f"no parameter {_shown(key)}, expected {' or '.join(names) or 'none'}")
        name, parameter = names[key], parameters(kind)[names[key]]
        if parameter.several:
            found[name] = (*found.get(name, ()), parameter.read(text))
        elif name in found:
            raise WrongQuestion(f"{key} is given more than once")
        else:
            found[name] = parameter.read(text)
    for key, name in names.items():
        if name not in found and default(kind, name) is MISSING:
            raise WrongQuestion(f"no {key} is given, expected {parameters(kind)[name].wanted}")
    return kind(**found)


def to_query(question: Query) -> list[tuple[str, str]]:
    """The pairs that ask the same; of defaults nothing is said."""
    pairs: list[tuple[str, str]] = []
    for name, parameter in parameters(type(question)).items():
        value = getattr(question, name)
        if value != default(type(question), name):
            pairs += [(parameter.key or name, _text(each)) for each in (value if parameter.several else [value])]
    return pairs


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _shown(value: object) -> str:
    """A value that was seen: as much of it as tells what it is."""
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:99]}…"
