"""The page about results in Python names everything that exists, and its examples run."""

from __future__ import annotations

import doctest
import inspect
import re

import pytest
from conftest import ROOT
from faults import Start
from test_reference import first_spans, public_members, rows, section
from verbs import started

import brickd
from brickd import errors
from brickd.profile import Profile
from brickd.results.schema import COUNT, FLAG, MAYBE, NUMBER, OBJECT, TEXT, TEXTS, TIME, WHOLE
from brickd.results.table import Table

PAGE = (ROOT / "docs" / "reference" / "python-results.md").read_text()
QUERIES = section(PAGE, "brickd.live and brickd.open")
_SIGNATURE = re.compile(r"(\w+)\((.*)\)")


def signatures(text: str) -> dict[str, list[str]]:
    """Return each documented function with its parameters."""
    found = (_SIGNATURE.fullmatch(span) for span in first_spans(text))
    return {each[1]: [name for name in each[2].split(", ") if name] for each in found if each is not None}


def parameters(function: object) -> list[str]:
    """Return the parameters of a function, as the page writes them."""
    assert callable(function)
    signature = inspect.signature(function).parameters.values()
    return [f"*{each.name}" if each.kind is each.VAR_POSITIONAL else each.name for each in signature]


def test_the_examples_on_the_page_print_the_shown_output(worker: Start) -> None:
    started(worker)
    runner = doctest.DocTestRunner()
    examples = "\n".join(re.findall(r"```pycon\n(.*?)```", PAGE, re.DOTALL))
    test = doctest.DocTestParser().get_doctest(examples, {}, "page", None, 0)
    assert (runner.run(test).failed, len(test.examples) > 5) == (0, True)


def test_each_function_and_method_is_documented_with_its_parameters() -> None:
    methods = {name for name in public_members(Profile) if callable(getattr(Profile, name))} - {"of_recording"}
    documented = signatures(QUERIES)
    assert documented.keys() == methods | {"live", "open"}
    for name, given in documented.items():
        where = brickd if name in ("live", "open") else Profile()
        assert given == parameters(getattr(where, name)), name


def test_each_member_of_a_table_is_documented() -> None:
    own = {name for name in vars(Table) if not name.startswith("_")} | {"columns", "document", "name", "words"}
    named = {re.split(r"[(]", span)[0] for span in first_spans(section(PAGE, "Tables"))}
    assert named == own


def test_the_documented_types_are_those_of_the_kinds() -> None:
    kinds = (TEXT, COUNT, WHOLE, NUMBER, FLAG, MAYBE, TIME, TEXTS, OBJECT)
    numpy = {"O": "object", "i8": "int64", "f8": "float64", "?": "bool", "M8[ms]": "datetime64[ms]"}
    arrow = {"float64": "double", "timestamp": "timestamp[ms, tz=UTC]", "list": "list<string>"}
    table = [row for row in rows(section(PAGE, "Tables")) if len(row) == 4][1:]
    for kind, (_, in_numpy, in_pandas, in_arrow) in zip(kinds, table, strict=True):
        assert f"`{numpy[kind.numpy]}`" in in_numpy
        assert f"`{kind.pandas}`" in in_pandas
        assert f"`{arrow.get(kind.arrow, kind.arrow)}`" in in_arrow


def test_the_documented_errors_exist() -> None:
    named = first_spans(section(PAGE, "Errors"))
    assert len(named) > 5
    assert [name for name in named if not issubclass(getattr(errors, name), errors.BrickdError)] == []


@pytest.mark.parametrize("name", ["live", "open", "diff"])
def test_each_function_of_brickd_has_a_docstring(name: str) -> None:
    assert inspect.getdoc(getattr(brickd, name))
