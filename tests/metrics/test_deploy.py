"""The files in deploy/ use only series, labels, values and verbs that brickd has. No Prometheus is needed here."""

from __future__ import annotations

import doctest
import re
from itertools import pairwise
from typing import get_args

import deploy_files
import pytest
from deploy_files import DEPLOY, RULES, dashboard, grouped, matchers, names, panel_expressions, rules, variable_queries

from brickd.analysis.evidence_verdicts import Proof
from brickd.analysis.problem import Kind
from brickd.metrics.families import FAMILIES, Family
from brickd.query.verbs import VERBS

FROM_PROMETHEUS = {"job", "instance", "le"}
FROM_OTHERS = {"up": set[str](), "node_textfile_mtime_seconds": {"file"}}


def of(family: Family) -> list[str]:
    """Return the names of the series of a family."""
    suffixes = {"histogram": ("_bucket", "_count", "_sum"), "summary": ("_count", "_sum")}
    return [f"{family.name}{suffix}" for suffix in suffixes.get(family.type, ("",))]


SERIES = {name: set(family.labels) for family in FAMILIES for name in of(family)} | FROM_OTHERS
SERIES |= {each.name: {"service", "brick"} for each in rules() if each.kind == "record"}
EXPRESSIONS = [*(each.expression for each in rules()), *panel_expressions(), *variable_queries()]
ALERTS = [each for each in rules() if each.kind == "alert"]


def test_the_reader_of_these_files_finds_every_rule() -> None:
    assert doctest.testmod(deploy_files).attempted == 3
    assert doctest.testmod(deploy_files).failed == 0
    text = RULES.read_text()
    assert len(rules()) == text.count("- alert:") + text.count("- record:") == text.count("expr:") > 0
    assert all(names(each) for each in EXPRESSIONS)


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_an_expression_uses_only_series_and_labels_of_the_reference(expression: str) -> None:
    used = names(expression)
    assert used <= SERIES.keys()
    labels = {label for label, _ in matchers(expression)} | grouped(expression)
    assert labels <= FROM_PROMETHEUS.union(*(SERIES[name] for name in used))


def test_selectors_use_only_values_that_exist() -> None:
    values = {
        "kind": set(get_args(Kind)),
        "state": {"active", "silenced", "live", "ended", "died"},
        "verdict": set(get_args(Proof)),
        "brick": {"other"},
        "job": {"brickd"},
    }
    for expression in EXPRESSIONS:
        for label, value in matchers(expression):
            assert not value or value.startswith("$") or label == "file" or value in values[label]


@pytest.mark.parametrize("rule", ALERTS, ids=[each.name for each in ALERTS])
def test_an_alert_has_a_severity_a_duration_a_summary_and_the_next_command(rule: deploy_files.Rule) -> None:
    assert re.search(r"^ {8}for: \d+m\b", rule.text, re.MULTILINE)
    assert re.search(r"^ {10}severity: (critical|warning)$", rule.text, re.MULTILINE)
    if re.search(r"^ {8}annotations: \*\w+$", rule.text, re.MULTILINE):
        return  # the annotations of the alert above
    summary, _, description = rule.text.partition("          description:")
    assert "summary:" in summary
    assert "$labels." in summary
    assert "On {{ $labels.instance }}" in description
    assert re.search(r"\bbrickd\s+[a-z]", description)


def test_commands_in_texts_exist() -> None:
    texts = [rule.text for rule in ALERTS] + [panel.get("description", "") for panel in dashboard()["panels"]]
    commands = {verb for text in texts for verb in re.findall(r"(?:`|: |;\s+)brickd\s+([a-z]+)", text)}
    assert {"status", "doctor", "coverage"} <= commands <= VERBS.keys()


def test_no_file_has_a_path_of_some_machine() -> None:
    for each in DEPLOY.iterdir():
        assert re.findall(r"""(?:^|[\s"'(=])/[a-z]\w+""", each.read_text(), re.MULTILINE) == [], each.name


def test_the_panels_have_numbers_of_their_own_the_chosen_datasource_and_do_not_overlap() -> None:
    board = dashboard()
    panels = board["panels"]
    assert [each["id"] for each in panels] == [*range(1, len(panels) + 1)]
    variables = [each for each in board["templating"]["list"] if each["type"] == "query"]
    chosen = {"type": "prometheus", "uid": "${datasource}"}
    assert all(each["datasource"] == chosen for each in (*panels, *variables, *board["annotations"]["list"]))
    rows: dict[int, list[tuple[int, int, int]]] = {}
    for each in panels:
        at = each["gridPos"]
        rows.setdefault(at["y"], []).append((at["x"], at["w"], at["h"]))
    for row in rows.values():
        assert [x + w for x, w, _ in row] == [*(x for x, _, _ in row[1:]), 24]
        assert len({h for *_, h in row}) == 1
    assert all(y + rows[y][0][2] == below for y, below in pairwise(rows))
