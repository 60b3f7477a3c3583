"""The troubleshooting page lists every finding and every refusal, and no others.

The test of the refusals takes a quarter of a second of processor time. It still belongs to the fast tests, because
every change of a message must pass it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import get_args

import pytest
from conftest import ROOT
from pages import HOW_TO
from test_imports import statements

import brickd.client
import brickd.errors
from brickd.doctor.run_checks import examine
from brickd.errors import BrickdError
from brickd.launch import NotBegunError
from brickd.shm.losses import Kind

PAGE = re.sub(r"^```.*?^```$", "", (HOW_TO / "troubleshooting.md").read_text(), flags=re.MULTILINE | re.DOTALL)
_PLACEHOLDER = re.compile(r"\b(?:[A-Z]{2,}|[NXY])\b|…|\d+")
_CODE = re.compile(r"`([^`]+)`")
_SENTENCE = re.compile(r"\w \w+ \w")
_LEAST = 6  # the fewest characters by which a message is distinguished from others
_REFUSALS = {
    name
    for module in (brickd.errors, brickd.client)
    for name, kind in vars(module).items()
    if isinstance(kind, type) and issubclass(kind, BrickdError)
} | {"UsageError", NotBegunError.__name__}
_RAISED = re.compile(rf"\braise\s+([\w.]+\.)?({'|'.join(_REFUSALS)})\(")


def section(title: str) -> str:
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def findings(text: str) -> set[str]:
    """Return the findings of `doctor` that the page lists: headings, and rows of the table of losses."""
    return {
        *re.findall(r"^### ([\w-]+)$", text, re.MULTILINE),
        *re.findall(r"^\| `(loss-[\w-]+)` \|", text, re.MULTILINE),
    }


def test_every_finding_of_doctor_is_documented_and_no_other(prefix: str) -> None:
    exist = {finding.name for finding in examine()} | {f"loss-{kind}" for kind in get_args(Kind)}
    assert findings(section("Findings of `brickd doctor`")) == exist


def all_parts(message: str) -> list[str]:
    """Return the parts of a message that do not vary."""
    return [part.strip(" :,;()*") for part in _PLACEHOLDER.split(message)]


def parts(message: str) -> list[str]:
    """Return those parts of a message that do not vary and are long."""
    return [part for part in all_parts(message) if len(part) >= _LEAST]


def quoted() -> list[str]:
    """Return the messages on the page: the first columns of the tables, and other code of at least two words."""
    firsts = [row.split("|")[1] for row in PAGE.splitlines() if row.startswith("| ")]
    messages = [message for first in firsts for message in _CODE.findall(first)]
    return [message for message in messages if not message.startswith("loss-")]


def literals(node: ast.AST) -> str:
    """Return the constant text in a syntax tree; variable parts become a zero byte."""
    return texts(ast.walk(node))


def texts(nodes: Iterable[ast.AST]) -> str:
    """Return the constant text of nodes."""
    return "\0".join(each.value for each in nodes if isinstance(each, ast.Constant) and isinstance(each.value, str))


def texts_of_module(path: Path) -> str:
    """Return the constant text of a module without docstrings."""
    nodes = [*ast.walk(ast.parse(path.read_text()))]
    docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    return texts(node for node in nodes if id(node) not in docstrings)


def raises(path: Path) -> Iterator[ast.Raise]:
    """Yield the `raise` statements of a module that may raise a refusal."""
    text = path.read_text()
    if _RAISED.search(text):  # parsing all modules takes a second
        yield from (each for each in statements(ast.parse(text).body) if isinstance(each, ast.Raise))


def sources() -> str:
    """Return all texts that brickd and the agent can print."""
    found = [
        texts_of_module(path)
        for folder in ("brickd", "agent/brick_agent")
        for path in sorted((ROOT / folder).rglob("*.py"))
    ]
    found += [re.sub(r'"\s*\n\s*"', "", path.read_text()) for path in sorted((ROOT / "agent" / "src").rglob("*.c"))]
    return "\0".join(found)


@pytest.mark.ci
def test_every_documented_message_is_printed_by_the_code() -> None:
    every = sources()
    assert [message for message in quoted() if not parts(message)] == []
    assert [message for message in quoted() if not all(part in every for part in parts(message))] == []


def refusals() -> Iterator[tuple[str, str]]:
    """Return the place and the text of each refusal."""
    for path in sorted((ROOT / "brickd").rglob("*.py")):
        for node in raises(path):
            if not isinstance(node.exc, ast.Call):
                continue
            made = node.exc.func
            name = made.attr if isinstance(made, ast.Attribute) else getattr(made, "id", "")
            reported = literals(node.exc)
            if name in _REFUSALS and any(" " in part.strip(" ,:") for part in reported.split("\0")):
                yield f"{path.relative_to(ROOT)}:{node.lineno}: {reported}".replace("\0", "…"), reported


def reasons() -> Iterator[tuple[str, str]]:
    """Return the reasons why the writer in C opens no segment, or has no key."""
    for name in ("config", "lifecycle", "segment_file", "key_file"):
        path = ROOT / "agent" / "src" / "writer" / f"{name}.c"
        for text in re.findall(r'(?:return|wrong =|refused\(|_BYTES,) ?"(\w+ [^"]+)"', path.read_text()):
            yield f"{path.name}: {text}", text


def has_in_order(text: str, found: Iterable[str]) -> bool:
    """Return whether a text has all these parts, one after another."""
    at = 0
    for part in found:
        if (place := text.find(part, at)) < 0:
            return False
        at = place + len(part)
    return True


def test_every_refusal_is_documented() -> None:
    messages = {*quoted(), *filter(_SENTENCE.search, _CODE.findall(PAGE))}
    known = [found for found in map(all_parts, messages) if sum(map(len, found)) >= _LEAST]
    every = [*refusals(), *reasons()]
    assert len(every) > 100
    assert [where for where, reported in every if not any(has_in_order(reported, found) for found in known)] == []
