"""What the files in deploy/ tell Prometheus to compute: the rules, and the expressions of the dashboard."""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

from conftest import ROOT

DEPLOY = ROOT / "deploy"
RULES, SCRAPE, DASHBOARD = DEPLOY / "brickd.rules.yml", DEPLOY / "prometheus.yml", DEPLOY / "grafana-dashboard.json"
_RULE = re.compile(r"^ {6}- (alert|record): (\S+)\n((?: {8}.*\n|\n|(?= {6}#).*\n)*)", re.MULTILINE)
_EXPRESSION = re.compile(r"^ {8}expr: (?:\|\n((?: {10}.*\n)+)|(.*)\n)", re.MULTILINE)
_NAME = re.compile(r"(?<![\w:])(?:\w+:)?brickd_\w+(?::\w+)?|(?<![\w:])(?:up|node_textfile_mtime_seconds)\b")
_MATCHERS = re.compile(r"\{([^{}]*)\}")
_MATCHER = re.compile(r'(\w+)(?:=~|!~|!=|=)"([^"]*)"')


class Rule(NamedTuple):
    """A rule; `text` is everything below its name."""

    kind: str
    name: str
    expression: str
    text: str


def rules() -> list[Rule]:
    """Return the rules, in order."""
    found = []
    for kind, name, text in _RULE.findall(RULES.read_text()):
        (expression,) = _EXPRESSION.findall(text)
        found.append(Rule(kind, name, " ".join("".join(expression).split()), text))
    return found


def dashboard() -> dict[str, Any]:
    """Return the dashboard."""
    board: dict[str, Any] = json.loads(DASHBOARD.read_text())
    return board


def panel_expressions() -> list[str]:
    """Return the expressions of the panels and of the annotations of the dashboard."""
    board = dashboard()
    asked = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    return [*asked, *(each["expr"] for each in board["annotations"]["list"])]


def variable_queries() -> list[str]:
    """Return what the variables of the dashboard are filled from."""
    return [each["query"] for each in dashboard()["templating"]["list"] if each["type"] == "query"]


def names(expression: str) -> set[str]:
    """Return the names of the series in an expression.

    >>> sorted(names('rate(a:brickd_x:p99[5m]) / brickd_up_total{up="brickd"} unless up == 0'))
    ['a:brickd_x:p99', 'brickd_up_total', 'up']
    """
    return set(_NAME.findall(_MATCHERS.sub(" ", expression)))


def matchers(expression: str) -> set[tuple[str, str]]:
    """Return each label of a selector with each value that it may have.

    >>> sorted(matchers('x{a="1", b=~"2|3"} and y{a!="4"}'))
    [('a', '1'), ('a', '4'), ('b', '2'), ('b', '3')]
    """
    return {
        (label, value)
        for inside in _MATCHERS.findall(expression)
        for label, values in _MATCHER.findall(inside)
        for value in values.split("|")
    }


def grouped(expression: str) -> set[str]:
    """Return the labels by which an expression groups and joins.

    >>> sorted(grouped("sum by (a, b) (x) / on (c) group_left () y"))
    ['a', 'b', 'c']
    """
    return {label for inside in re.findall(r"\b(?:by|on) \(([^)]*)\)", expression) for label in inside.split(", ")}
